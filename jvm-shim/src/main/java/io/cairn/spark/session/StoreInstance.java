package io.cairn.spark.session;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.cache.StateCache;
import io.cairn.spark.engine.EngineInstance;
import io.cairn.spark.engine.WorkerPool;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.protocol.Json;
import io.cairn.spark.settings.StoreSettings;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.execution.streaming.state.RocksDBEventForwarder;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The store of one provider object: what it is, and the parts that its sessions use one after the
 * other. Each part keeps its own fields, and says under which lock.
 *
 * <p>One session at a time, which holds the lock; maintenance runs concurrently. Starts no worker
 * before the first session.
 */
public final class StoreInstance {
  private static final Logger LOG = LoggerFactory.getLogger(StoreInstance.class);

  public final StateStoreId id;

  /** Operator, partition and store name, for errors and logs. */
  public final String name;

  public final StateStoreConf storeConf;

  /** Has the run id alone, for Spark's coordinator. */
  public final Configuration runConf = new Configuration(false);

  public final StorageAccess storage;
  public final CurrentVersion current;
  final String runId;
  final StoreSettings conf;
  final StoreLock lock;
  final EngineInstance engine;
  final StateCache cache;
  final StoreRefill refill;
  final CommitJson commitJson;

  /** Not final: in a test a commit fails behind its PUT. */
  SnapshotReports snapshots = new SnapshotReports(this::reportSnapshot);

  /** The cache's figures at the end of the last session. INVARIANT: used under the lock. */
  private StateCache.Stats lastStats;

  public StoreInstance(
      StateStoreId id,
      String runId,
      StoreSettings conf,
      StateStoreConf storeConf,
      Configuration hadoop) {
    this.id = id;
    this.runId = runId;
    this.conf = conf;
    this.storeConf = storeConf;
    name = id.operatorId() + "/" + id.partitionId() + "/" + id.storeName();
    commitJson = new CommitJson(runId);
    runConf.set(StreamExecution.RUN_ID_KEY(), runId);
    storage = new StorageAccess(name, id.storeCheckpointLocation(), conf, hadoop);
    cache = new StateCache(SparkMemoryConsumer.pool(conf.cacheMemoryBytes));
    lastStats = cache.stats();
    String group = id.checkpointRootLocation() + "#" + id.operatorId() + "/" + id.partitionId();
    engine = new EngineInstance(WorkerPool.of(conf.worker), group, name, this::openArguments);
    lock = new StoreLock(name, conf.lockTimeoutMs, this::closeParts);
    current = new CurrentVersion(name, engine, cache);
    refill = new StoreRefill(cache, conf.isCountingRows);
  }

  private ObjectNode openArguments() {
    ObjectNode arguments = Json.object();
    arguments
        .putObject("store")
        .put("operator", id.operatorId())
        .put("partition", id.partitionId())
        .put("name", id.storeName());
    arguments.put("url", storage.url());
    arguments.set("storage", storage.settings());
    arguments.set("conf", Json.MAPPER.valueToTree(conf.engineConf()));
    arguments.put("run_id", runId);
    arguments.put("checkpoint_format", storeConf.enableStateStoreCheckpointIds() ? 2 : 1);
    return arguments;
  }

  /** The cache's figures at the end of the previous session. REQUIRES: the lock. */
  StateCache.Stats lastStats() {
    return lastStats;
  }

  /**
   * Ends a session: releases the lock.
   *
   * @param stats the cache's figures, as the session reports them
   */
  void endSession(StateCache.Stats stats) {
    lastStats = stats;
    lock.release();
  }

  private void reportSnapshot(long version) {
    if (storeConf.reportSnapshotUploadLag()) {
      new RocksDBEventForwarder(runId, id).reportSnapshotUploaded(version);
    }
  }

  /** The setting {@code cairn.maxLineage}. */
  public long maxLineage() {
    return conf.maxLineage;
  }

  /** The newest snapshot known, or -1. */
  public long snapshotVersion() {
    return snapshots.newest();
  }

  /** Runs a snapshot, a clean-up, or both, if the store is open in a living worker. */
  public void maintain(boolean snapshot, boolean cleanup) {
    ObjectNode arguments = Json.object().put("snapshot", snapshot).put("cleanup", cleanup);
    if (storeConf.unloadOnCommit()) {
      // The store is closed next, which would end the upload of a snapshot.
      arguments.put("wait_ms", conf.worker.timeouts().silenceMs() / 2);
    }
    // Temporary credentials may have been renewed since.
    arguments.set("storage", storage.renewedSettings());
    JsonNode answer = engine.callIfOpen("maintain", arguments);
    if (answer != null) {
      snapshots.note(answer.path("snapshot_version").asLong());
    }
  }

  /** Closes the store, at once or when its running session ends. Idempotent. */
  public void close() {
    lock.close();
  }

  private void closeParts() {
    try {
      cache.close();
      engine.close();
    } catch (CairnException e) {
      LOG.warn("closing store {}: {}", name, e.getMessage());
    }
  }
}
