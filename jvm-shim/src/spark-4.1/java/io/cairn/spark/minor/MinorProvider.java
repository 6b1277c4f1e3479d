package io.cairn.spark.minor;

import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import scala.Option;

/**
 * Spark's provider, with the methods of the newest minor. This Spark requests no snapshot in a
 * commit and no empty store, and calls doMaintenance alone.
 */
public abstract class MinorProvider extends RocksDBStateStoreProvider {
  public abstract StateStore getStore(
      long version, Option<String> checkpointId, boolean forceSnapshotOnCommit, boolean loadEmpty);

  public abstract StateStore upgradeReadStoreToWriteStore(
      ReadStateStore readStore,
      long version,
      Option<String> checkpointId,
      boolean forceSnapshotOnCommit);

  public abstract void doSnapshotMaintenance();

  public abstract void doCleanupMaintenance();

  @Override
  public StateStore getStore(long version, Option<String> checkpointId) {
    return getStore(version, checkpointId, false, false);
  }

  @Override
  public StateStore upgradeReadStoreToWriteStore(
      ReadStateStore readStore, long version, Option<String> checkpointId) {
    return upgradeReadStoreToWriteStore(readStore, version, checkpointId, false);
  }
}
