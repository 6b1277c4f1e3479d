package io.cairn.bench;

import java.util.concurrent.locks.ReentrantReadWriteLock;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * A provider that stores nothing: every key is absent, every write is dropped, a commit counts the
 * version. What a query does with it is the work of Spark alone, the limit of any provider.
 */
public final class NothingStateStoreProvider implements StateStoreProvider {
  private ReentrantReadWriteLock lock;
  private volatile boolean isUnloaded;
  private StateStoreId id;
  private StateStoreConf conf;
  private Configuration hadoop;

  /** Spark calls this. */
  public NothingStateStoreProvider() {
    StateStoreProvider.$init$(this);
  }

  @Override
  public void init(
      StateStoreId storeId,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec spec,
      boolean useColumnFamilies,
      StateStoreConf storeConf,
      Configuration hadoopConf,
      boolean useMultipleValuesPerKey,
      Option<StateSchemaProvider> schemas) {
    id = storeId;
    conf = storeConf;
    hadoop = new Configuration(hadoopConf);
  }

  @Override
  public StateStoreId stateStoreId() {
    return id;
  }

  @Override
  public StateStore getStore(
      long version, Option<String> checkpointId, boolean forceSnapshot, boolean loadEmpty) {
    return new NothingStateStore(id, version, this::report);
  }

  private void report(long version) {
    if (conf.commitValidationEnabled()) {
      StateStore.reportCommitToCoordinator(version, id, hadoop);
    }
  }

  @Override
  public void close() {
    // Nothing is open.
  }

  @Override
  public boolean unloaded() {
    return isUnloaded;
  }

  @Override
  public void unloaded_$eq(boolean unloaded) {
    isUnloaded = unloaded;
  }

  @Override
  public ReentrantReadWriteLock maintenanceLock() {
    return lock;
  }

  @Override
  public void
      org$apache$spark$sql$execution$streaming$state$StateStoreProvider$_setter_$maintenanceLock_$eq(
          ReentrantReadWriteLock maintenanceLock) {
    lock = maintenanceLock;
  }
}
