package io.cairn.spark;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import java.io.File;
import java.util.UUID;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.errors.QueryExecutionErrors;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBConf;
import org.apache.spark.sql.execution.streaming.state.RocksDBEventForwarder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangeDataReader;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreInstanceMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreSnapshotLastUploadInstanceMetric;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What Spark loads by {@code spark.sql.streaming.stateStore.providerClass}: one store of one query
 * run on one executor.
 *
 * <p>Extends Spark's own provider only because Spark 4.3 opens its newer join formats to subclasses
 * of it; nothing of it is used. Its constructor is trivial, for Spark makes instances on the driver
 * only to ask for metrics; {@code init}, which holds a lock of all stores, checks and starts
 * nothing.
 */
public class CairnStateStoreProvider extends RocksDBStateStoreProvider {
  private static final Logger LOG = LoggerFactory.getLogger(CairnStateStoreProvider.class);
  private static final StateStoreSnapshotLastUploadInstanceMetric SNAPSHOT_UPLOADED =
      new StateStoreSnapshotLastUploadInstanceMetric(
          Option.empty(), StateStoreId.DEFAULT_STORE_NAME());

  private volatile StoreInstance store;
  private volatile ColumnFamilies families;
  private volatile boolean isValidated;
  private StructType keySchema;
  private StructType valueSchema;
  private SparkConf sparkConf;

  @Override
  public void init(
      StateStoreId storeId,
      StructType newKeySchema,
      StructType newValueSchema,
      KeyStateEncoderSpec spec,
      boolean useColumnFamilies,
      StateStoreConf storeConf,
      Configuration hadoopConf,
      boolean useMultipleValuesPerKey,
      Option<StateSchemaProvider> schemas) {
    if (useMultipleValuesPerKey && !useColumnFamilies) {
      throw new IllegalArgumentException(
          "requirement failed: Multiple values per key support requires column families to be"
              + " enabled");
    }
    // Spark changes the run id in this shared object later.
    Configuration hadoop = new Configuration(hadoopConf);
    StoreSettings conf = StoreSettings.of(storeConf);
    String runId = hadoop.get(StreamExecution.RUN_ID_KEY());
    StoreInstance made =
        new StoreInstance(
            storeId, runId == null ? UUID.randomUUID().toString() : runId, conf, storeConf, hadoop);
    try {
      families = new ColumnFamilies(made, useColumnFamilies, schemas);
      families.declare(
          ColumnFamilies.DEFAULT,
          newKeySchema,
          newValueSchema,
          spec,
          useMultipleValuesPerKey,
          false);
      made.makeFolder();
    } catch (RuntimeException | Error e) {
      made.close();
      throw e;
    }
    keySchema = newKeySchema;
    valueSchema = newValueSchema;
    isValidated = useColumnFamilies;
    store = made;
  }

  @Override
  public StateStoreId stateStoreId() {
    StoreInstance made = store;
    return made == null ? null : made.id;
  }

  @Override
  public StateStore getStore(
      long version, Option<String> checkpointId, boolean forceSnapshotOnCommit, boolean loadEmpty) {
    return open(
        version,
        checkpointId,
        forceSnapshotOnCommit,
        false,
        () -> store().load(version, checkpointId.getOrElse(() -> null), loadEmpty));
  }

  @Override
  public StateStore getReadStore(long version, Option<String> checkpointId) {
    return open(
        version,
        checkpointId,
        false,
        true,
        () -> store().load(version, checkpointId.getOrElse(() -> null), false));
  }

  @Override
  public StateStore upgradeReadStoreToWriteStore(
      ReadStateStore readStore,
      long version,
      Option<String> checkpointId,
      boolean forceSnapshotOnCommit) {
    // Spark hands over the read store of whatever operator ran before in the task, and one of a
    // provider that was unloaded since.
    if (readStore instanceof CairnStateStore cairn && cairn.id().equals(store().id)) {
      CairnStateStore upgraded = cairn.upgraded(version, checkpointId, forceSnapshotOnCommit);
      if (upgraded != null) {
        return upgraded;
      }
    }
    return getStore(version, checkpointId, forceSnapshotOnCommit, false);
  }

  @Override
  public StateStore replayStateFromSnapshot(
      long snapshotVersion,
      long endVersion,
      boolean readOnly,
      Option<String> snapshotId,
      Option<String> endId) {
    requireVersion(snapshotVersion);
    return open(
        endVersion,
        endId,
        false,
        readOnly,
        () -> {
          try {
            return store()
                .loadSnapshot(
                    snapshotVersion,
                    snapshotId.getOrElse(() -> null),
                    endVersion,
                    endId.getOrElse(() -> null));
          } catch (CairnException e) {
            throw SparkErrors.missingSnapshot(e);
          }
        });
  }

  @Override
  public ReadStateStore replayReadStateFromSnapshot(
      long snapshotVersion, long endVersion, Option<String> snapshotId, Option<String> endId) {
    return replayStateFromSnapshot(snapshotVersion, endVersion, true, snapshotId, endId);
  }

  @Override
  public StateStoreChangeDataReader getStateStoreChangeDataReader(
      long startVersion, long endVersion, Option<String> familyName, Option<String> endId) {
    StoreSession session =
        openSession(
            endVersion,
            false,
            () -> store().load(endVersion, endId.getOrElse(() -> null), false).unfilled());
    try {
      return new ChangeDataReader(
          session,
          startVersion,
          endVersion,
          familyName.getOrElse(() -> ColumnFamilies.DEFAULT),
          endId.getOrElse(() -> null));
    } catch (RuntimeException e) {
      session.release();
      throw SparkErrors.cannotLoad(located(e, endVersion), store().id.storeCheckpointLocation());
    }
  }

  private CairnStateStore open(
      long version,
      Option<String> checkpointId,
      boolean forceSnapshot,
      boolean readOnly,
      Supplier<LoadedVersion> load) {
    StoreSession session = openSession(version, forceSnapshot, load);
    return new CairnStateStore(this, session, checkpointId, readOnly);
  }

  private StoreSession openSession(
      long version, boolean forceSnapshot, Supplier<LoadedVersion> load) {
    StoreInstance made = store();
    requireVersion(version);
    StoreSession session = null;
    try {
      long startedNs = System.nanoTime();
      made.takeTurn(Thread.currentThread().getName());
      try {
        LoadedVersion opening = load.get();
        session = new StoreSession(made, families, opening, forceSnapshot, startedNs);
      } finally {
        if (session == null) {
          made.forget();
          made.endTurn();
        }
      }
      session.endWithTask();
      return session;
    } catch (RuntimeException | OutOfMemoryError e) {
      throw SparkErrors.cannotLoad(located(e, version), made.id.storeCheckpointLocation());
    }
  }

  private static void requireVersion(long version) {
    if (version < 0) {
      throw SparkErrors.<RuntimeException>sneaky(
          QueryExecutionErrors.unexpectedStateStoreVersion(version));
    }
  }

  private Throwable located(Throwable error, long version) {
    return error instanceof CairnException cairn ? cairn.at(store().name, version) : error;
  }

  private StoreInstance store() {
    StoreInstance made = store;
    if (made == null) {
      throw CairnException.of(
          ErrorKind.BUG,
          "CAIRN_INTERNAL",
          "the provider was used before init",
          "report it with the executor's log");
    }
    return made;
  }

  /**
   * Checks the first pair read against the schemas, so that a change that Spark did not see fails
   * before it harms.
   */
  void validateOnce(UnsafeRow key, UnsafeRow value) {
    if (!isValidated) {
      StateStoreProvider.validateStateRowFormat(
          key, keySchema, value, valueSchema, store.id, store.storeConf);
      isValidated = true;
    }
  }

  @Override
  public void doMaintenance() {
    maintain(true, true);
  }

  @Override
  public void doSnapshotMaintenance() {
    maintain(true, false);
  }

  @Override
  public void doCleanupMaintenance() {
    maintain(false, true);
  }

  /**
   * Never throws: Spark would unload the provider. What was not done now is done at the next
   * interval.
   */
  private void maintain(boolean snapshot, boolean cleanup) {
    StoreInstance made = store;
    if (made == null) {
      return;
    }
    try {
      made.maintain(snapshot, cleanup);
    } catch (RuntimeException e) {
      LOG.warn("Maintenance of store {} did not complete: {}", made.name, e.getMessage(), e);
    }
  }

  @Override
  public void close() {
    StoreInstance made = store;
    if (made != null) {
      made.close();
    }
  }

  @Override
  public Seq<StateStoreCustomMetric> supportedCustomMetrics() {
    return StoreMetric.supported();
  }

  @Override
  public Seq<StateStoreInstanceMetric> supportedInstanceMetrics() {
    return CollectionConverters.asScala(
            java.util.List.<StateStoreInstanceMetric>of(SNAPSHOT_UPLOADED))
        .toSeq();
  }

  @Override
  public long latestVersion() {
    StoreInstance made = store;
    return made == null ? -1 : made.version();
  }

  @Override
  public String logName() {
    return CairnStateStoreProvider.class.getName();
  }

  @Override
  public SparkConf sparkConf() {
    return sparkConf;
  }

  @Override
  public void sparkConf_$eq(SparkConf conf) {
    sparkConf = conf;
  }

  // What follows is Spark's own provider's inside, which has no counterpart here.

  @Override
  public RocksDB rocksDB() {
    throw noSparkRocksDb("rocksDB");
  }

  @Override
  public RocksDB createRocksDB(
      String dfsRootDir,
      RocksDBConf conf,
      File localRootDir,
      Configuration hadoopConf,
      String loggingId,
      boolean useColumnFamilies,
      boolean enableStateStoreCheckpointIds,
      int partitionId,
      Option<RocksDBEventForwarder> eventForwarder,
      Option<String> uniqueId) {
    throw noSparkRocksDb("createRocksDB");
  }

  @Override
  public RocksDBStateStore getRocksDBStateStore(long version) {
    throw noSparkRocksDb("getRocksDBStateStore");
  }

  private static UnsupportedOperationException noSparkRocksDb(String method) {
    return new UnsupportedOperationException(
        method + " is of Spark's RocksDB provider; Cairn keeps no RocksDB in the JVM");
  }
}
