package io.cairn.spark;

import io.cairn.spark.codec.FamilySpec;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.minor.MinorProvider;
import io.cairn.spark.session.ChangeSession;
import io.cairn.spark.session.ColumnFamilies;
import io.cairn.spark.session.LoadedVersion;
import io.cairn.spark.session.StoreInstance;
import io.cairn.spark.session.StoreSession;
import io.cairn.spark.session.TaskSessions;
import io.cairn.spark.settings.StoreSettings;
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
 * The class that {@code spark.sql.streaming.stateStore.providerClass} names: one store of one query
 * run on one executor.
 *
 * <p>Extends Spark's own provider only because Spark restricts its newer join formats to subclasses
 * of it; uses nothing of it. The constructor does nothing, because Spark creates instances on the
 * driver only for their metrics. {@code init} only checks and starts nothing, because Spark calls
 * it under a lock of all stores.
 */
public class CairnStateStoreProvider extends MinorProvider {
  private static final Logger LOG = LoggerFactory.getLogger(CairnStateStoreProvider.class);
  private static final StateStoreSnapshotLastUploadInstanceMetric SNAPSHOT_UPLOADED =
      new StateStoreSnapshotLastUploadInstanceMetric(
          Option.empty(), StateStoreId.DEFAULT_STORE_NAME());

  private static final String FORMAT_SETTING =
      "spark.sql.streaming.stateStore.checkpointFormatVersion";

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
    SparkVersionCheck.require();
    if (useMultipleValuesPerKey && !useColumnFamilies) {
      throw new IllegalArgumentException(
          "requirement failed: Multiple values per key support requires column families to be"
              + " enabled");
    }
    StoreSettings conf = StoreSettings.of(storeConf);
    StoreSettings.warnOfUnused(storeConf, hadoopConf);
    String runId = hadoopConf.get(StreamExecution.RUN_ID_KEY());
    if (runId != null) { // a state reader has none, and commits nothing
      SpeculationCheck.warn(storeConf.enableStateStoreCheckpointIds());
    }
    StoreInstance opened =
        new StoreInstance(
            storeId,
            runId == null ? UUID.randomUUID().toString() : runId,
            conf,
            storeConf,
            hadoopConf);
    try {
      families = new ColumnFamilies(opened, useColumnFamilies, schemas);
      families.declare(
          new FamilySpec(
              ColumnFamilies.DEFAULT,
              newKeySchema,
              newValueSchema,
              spec,
              useMultipleValuesPerKey,
              false));
      opened.storage.makeFolder();
    } catch (RuntimeException | Error e) {
      opened.close();
      throw e;
    }
    keySchema = newKeySchema;
    valueSchema = newValueSchema;
    isValidated = useColumnFamilies;
    store = opened;
  }

  @Override
  public StateStoreId stateStoreId() {
    StoreInstance opened = store;
    return opened == null ? null : opened.id;
  }

  @Override
  public StateStore getStore(
      long version, Option<String> checkpointId, boolean forceSnapshotOnCommit, boolean loadEmpty) {
    return open(
        version,
        checkpointId,
        forceSnapshotOnCommit,
        false,
        () -> store().current.load(version, idOf(checkpointId), loadEmpty));
  }

  @Override
  public StateStore getReadStore(long version, Option<String> checkpointId) {
    return open(
        version,
        checkpointId,
        false,
        true,
        () -> store().current.load(version, idOf(checkpointId), false));
  }

  @Override
  public StateStore upgradeReadStoreToWriteStore(
      ReadStateStore readStore,
      long version,
      Option<String> checkpointId,
      boolean forceSnapshotOnCommit) {
    // Spark may pass a read store of another operator of the task, or of an unloaded provider.
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
    // A snapshot has a committed version: the empty state, version 0, has none.
    requireVersion(snapshotVersion, 1);
    requireVersion(endVersion, snapshotVersion);
    return open(
        endVersion,
        endId,
        false,
        readOnly,
        () -> {
          try {
            return store()
                .current
                .loadSnapshot(snapshotVersion, idOf(snapshotId), endVersion, idOf(endId));
          } catch (CairnException e) {
            throw SparkErrors.missingSnapshot(e, logName());
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
    // Version 0 is empty: no changelog leads to it.
    requireVersion(startVersion, 1);
    requireVersion(endVersion, startVersion);
    StoreInstance opened = store();
    String name = familyName.getOrElse(() -> ColumnFamilies.DEFAULT);
    ChangeSession session = null;
    ChangeDataReader reader = null;
    try {
      session = ChangeSession.open(opened, startVersion, endVersion, idOf(endId));
      reader = new ChangeDataReader(session, families.get(name), startVersion, endVersion, name);
      return reader;
    } catch (RuntimeException | OutOfMemoryError e) {
      throw SparkErrors.cannotLoad(located(e, endVersion), opened.id.storeCheckpointLocation());
    } finally {
      if (session != null && reader == null) {
        session.close();
      }
    }
  }

  private CairnStateStore open(
      long version,
      Option<String> checkpointId,
      boolean forceSnapshot,
      boolean readOnly,
      Supplier<LoadedVersion> load) {
    StoreInstance opened = store();
    requireVersion(version, 0);
    StoreSession session;
    try {
      session = StoreSession.open(opened, families, forceSnapshot, load);
    } catch (RuntimeException | OutOfMemoryError e) {
      throw SparkErrors.cannotLoad(located(e, version), opened.id.storeCheckpointLocation());
    }
    TaskSessions.add(session);
    return new CairnStateStore(session, checkpointId, readOnly, this::validateOnce);
  }

  private static void requireVersion(long version, long least) {
    if (version < least) {
      throw SparkErrors.<RuntimeException>sneaky(
          QueryExecutionErrors.unexpectedStateStoreVersion(version));
    }
  }

  /**
   * Returns Spark's id of a version, or null. Refuses ids if the session is set to format 1, as
   * Spark's provider does: it would look for the files of format 1.
   */
  private String idOf(Option<String> checkpointId) {
    if (checkpointId.isDefined() && !store().storeConf.enableStateStoreCheckpointIds()) {
      throw CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_CONFIG",
          "the checkpoint has format 2, but " + FORMAT_SETTING + " is 1",
          "set it to 2");
    }
    return checkpointId.getOrElse(() -> null);
  }

  private Throwable located(Throwable error, long version) {
    return error instanceof CairnException cairn ? cairn.at(store().name, version) : error;
  }

  StoreInstance store() {
    StoreInstance opened = store;
    if (opened == null) {
      throw CairnException.of(
          ErrorKind.BUG,
          "CAIRN_INTERNAL",
          "the provider was used before init",
          "report it with the executor's log");
    }
    return opened;
  }

  /** Checks the first pair that is read against the schemas: Spark may miss a schema change. */
  private void validateOnce(UnsafeRow key, UnsafeRow value) {
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

  /** Never throws, because Spark would unload the provider; the next interval tries again. */
  private void maintain(boolean snapshot, boolean cleanup) {
    StoreInstance opened = store;
    if (opened == null) {
      return;
    }
    try {
      opened.maintain(snapshot, cleanup);
    } catch (RuntimeException e) {
      LOG.warn("Maintenance of store {} did not complete: {}", opened.name, e.getMessage(), e);
    }
  }

  @Override
  public void close() {
    StoreInstance opened = store;
    if (opened != null) {
      opened.close();
    }
  }

  @Override
  public Seq<StateStoreCustomMetric> supportedCustomMetrics() {
    if (store == null) {
      SparkVersionCheck.require();
      RealTimeCheck.refuse();
      ExtensionCheck.requireForTransformWithState(getClass());
    }
    return StoreMetrics.supported();
  }

  @Override
  public Seq<StateStoreInstanceMetric> supportedInstanceMetrics() {
    return CollectionConverters.asScala(
            java.util.List.<StateStoreInstanceMetric>of(SNAPSHOT_UPLOADED))
        .toSeq();
  }

  @Override
  public long latestVersion() {
    StoreInstance opened = store;
    return opened == null ? -1 : opened.current.number();
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

  // The remaining methods expose the RocksDB of Spark's provider, which Cairn does not have.

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
        method + " belongs to Spark's RocksDB provider; Cairn has no RocksDB in the JVM");
  }
}
