package io.cairn.spark.session;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.cache.CacheSession;
import io.cairn.spark.cache.StateCache;
import io.cairn.spark.cache.memory.MemoryPool;
import io.cairn.spark.codec.FamilyInfo;
import io.cairn.spark.engine.EngineInstance;
import io.cairn.spark.engine.SessionChannel;
import io.cairn.spark.engine.StorageConnections;
import io.cairn.spark.engine.WorkerPool;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.files.FileSystems;
import io.cairn.spark.protocol.CommitReply;
import io.cairn.spark.protocol.CommitRequest;
import io.cairn.spark.protocol.Json;
import io.cairn.spark.protocol.SessionId;
import io.cairn.spark.settings.S3Settings;
import io.cairn.spark.settings.StorageLocation;
import io.cairn.spark.settings.StoreSettings;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.execution.streaming.state.RocksDBEventForwarder;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The store of one provider object: its cache, its instance in a worker, the version that is loaded
 * in both, and the lock of its sessions.
 *
 * <p>One session at a time, which holds the lock; maintenance runs concurrently. Starts no worker
 * before the first session.
 */
public final class StoreInstance implements RefillThread.Store {
  private static final Logger LOG = LoggerFactory.getLogger(StoreInstance.class);
  private static final ConcurrentHashMap<Long, MemoryPool> POOLS = new ConcurrentHashMap<>();

  /**
   * Heap per byte of keys and values in the cache, with its overhead: a high estimate, to decide
   * whether a state probably fits.
   */
  private static final int ENTRY_OVERHEAD_FACTOR = 3;

  /** Least heap per key that is assumed where nothing is known. */
  private static final int MIN_BYTES_PER_KEY = 100;

  public final StateStoreId id;

  /** Operator, partition and store name, for errors and logs. */
  public final String name;

  public final StateStoreConf storeConf;

  /** Has the run id alone, for Spark's coordinator. */
  public final Configuration runConf = new Configuration(false);

  final String runId;
  final StoreSettings conf;
  final EngineInstance engine;
  final StateCache cache;

  /** Spark's, shared by all stores: a copy is large. Spark may change its run id. */
  private final Configuration hadoop;

  private final StorageLocation location;

  /** Its number, if the engine reaches the location through this JVM; else 0. */
  private final int fileSystem;

  private final MemoryPool memory;
  private final Semaphore lock = new Semaphore(1, true);
  private final String attemptJson;
  private final SnapshotReports snapshots = new SnapshotReports(this::reportSnapshot);

  /** Null: no thread holds the lock. */
  private volatile LockHolder lockHolder;

  private volatile boolean isClosed;
  private int sessionCount;

  /** The cache's figures at the end of the last session. INVARIANT: used under the lock. */
  private StateCache.Stats lastStats;

  /** Estimated heap for the whole state at the last load. INVARIANT: used under the lock. */
  private long loadedBytes;

  /** The engine's estimate at the last commit, for stores that do not count keys; -1: none. */
  private volatile long estimatedKeys = -1;

  /** Families of committed versions that the cache has. INVARIANT: used under the lock. */
  private final Set<Integer> familyIds = new TreeSet<>();

  /** The families of the last commit, and their text. INVARIANT: used under the lock. */
  private List<FamilyInfo> lastFamilies = List.of();

  private String lastFamiliesJson = "[]";

  /** Null: not known, so the next session loads. INVARIANT: changed under the lock. */
  private volatile StoreVersion current;

  /** Whether {@link #current} may be used without a checkpoint id that confirms it. */
  private volatile boolean isTrusted;

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
    this.hadoop = hadoop;
    this.name = id.operatorId() + "/" + id.partitionId() + "/" + id.storeName();
    attemptJson = newAttemptJson();
    runConf.set(StreamExecution.RUN_ID_KEY(), runId);
    location = StorageLocation.of(id.storeCheckpointLocation(), hadoop);
    fileSystem = location.isOfHadoop() ? FileSystems.register(location.hadoopPath(), hadoop) : 0;
    memory = POOLS.computeIfAbsent(conf.cacheMemoryBytes, SparkMemoryConsumer::register);
    cache = new StateCache(memory);
    lastStats = cache.stats();
    String group = id.checkpointRootLocation() + "#" + id.operatorId() + "/" + id.partitionId();
    engine = new EngineInstance(WorkerPool.of(conf.worker), group, name, this::openArguments);
  }

  /** Creates the store's folder on a file system: the state data source lists these folders. */
  public void makeFolder() {
    if (location.isFile()) {
      try {
        Files.createDirectories(Path.of(location.url()));
      } catch (IOException e) {
        throw CairnException.of(
            ErrorKind.INVALID,
            "CAIRN_ACCESS_DENIED",
            "cannot create the folder of store " + name + ": " + e.getMessage(),
            "check the permissions there",
            e);
      }
    }
  }

  private ObjectNode openArguments() {
    ObjectNode arguments = Json.object();
    arguments
        .putObject("store")
        .put("operator", id.operatorId())
        .put("partition", id.partitionId())
        .put("name", id.storeName());
    arguments.put("url", location.url());
    arguments.set("storage", storage());
    arguments.set("conf", Json.MAPPER.valueToTree(conf.engineConf()));
    arguments.put("run_id", runId);
    arguments.put("checkpoint_format", storeConf.enableStateStoreCheckpointIds() ? 2 : 1);
    return arguments;
  }

  /** Reads secrets, which may take long: not in {@code init}. */
  private ObjectNode storage() {
    ObjectNode settings = Json.object();
    if (location.isS3()) {
      S3Settings.of(hadoop, location.bucket(), conf.values).forEach(settings::put);
    } else if (location.isOfHadoop()) {
      settings.put(StorageConnections.FILE_SYSTEM, String.valueOf(fileSystem));
      settings.put("timeout_ms", String.valueOf(conf.worker.timeouts().requestMs()));
    }
    return settings;
  }

  /** Acquires the store's lock, which {@link #unlock} releases. */
  void lock() {
    requireOpen();
    try {
      if (!lock.tryAcquire(conf.lockTimeoutMs, TimeUnit.MILLISECONDS)) {
        throw CairnException.of(
            ErrorKind.RETRY,
            "CAIRN_BUSY",
            "store "
                + name
                + " was not released within "
                + conf.lockTimeoutMs
                + " ms by "
                + LockHolder.text(lockHolder)
                + "; it was requested by "
                + Thread.currentThread().getName(),
            "end that task, or raise spark.sql.streaming.stateStore.cairn.lockTimeoutMs");
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw CairnException.of(
          ErrorKind.RETRY,
          "CAIRN_BUSY",
          "the task was cancelled while store "
              + name
              + " was held by "
              + LockHolder.text(lockHolder),
          null);
    }
    lockHolder = LockHolder.ofThisThread();
    try {
      requireOpen();
    } catch (CairnException e) {
      unlock();
      throw e;
    }
  }

  private void requireOpen() {
    if (isClosed) {
      throw CairnException.closed(name);
    }
  }

  /** Releases the lock; closes the store if its provider was closed meanwhile. */
  void unlock() {
    lockHolder = null;
    lock.release();
    if (isClosed) {
      closeIfIdle();
    }
  }

  /** Loads a version into cache and engine, unless it is loaded already. REQUIRES: the lock. */
  public LoadedVersion load(long version, String checkpointId, boolean loadEmpty) {
    StoreVersion now = current;
    // The cache has no version after an error that emptied it.
    boolean isCached = now != null && cache.version() == now.version();
    if (isCached && !loadEmpty && isAt(now, version, checkpointId)) {
      return new LoadedVersion(now, nextSession(), MissingNode.getInstance(), false, 0);
    }
    return load("load", loadArguments(version, checkpointId, loadEmpty));
  }

  /**
   * Loads a version from the snapshot of an earlier one, or from what leads to that if it has no
   * snapshot, and the changelogs after it. REQUIRES: the lock.
   */
  public LoadedVersion loadSnapshot(
      long snapshotVersion, String snapshotId, long version, String checkpointId) {
    return load(
        "load_snapshot",
        loadArguments(version, checkpointId, false)
            .put("snapshot_version", snapshotVersion)
            .put("snapshot_checkpoint_id", snapshotId));
  }

  private long nextSession() {
    return SessionId.of(engine.number(), ++sessionCount);
  }

  private ObjectNode loadArguments(long version, String checkpointId, boolean loadEmpty) {
    return Json.object()
        .put("session", nextSession())
        .put("version", version)
        .put("checkpoint_id", checkpointId)
        .put("load_empty", loadEmpty);
  }

  private JsonNode callLoad(String method, ObjectNode arguments) {
    RunningLoads.Load running = RunningLoads.begin();
    try {
      return engine.callWithRetry(method, arguments);
    } finally {
      running.close();
    }
  }

  /**
   * Returns the versions of a range that have changes, and what the last one has, without a load.
   * REQUIRES: the lock.
   */
  JsonNode changes(long startVersion, long endVersion, String endId) {
    // The worker that answers may be another one, which has no version loaded.
    forgetVersion();
    return engine.callWithRetry(
        "changes",
        Json.object()
            .put("start_version", startVersion)
            .put("end_version", endVersion)
            .put("end_checkpoint_id", endId));
  }

  /** A session that needs no loaded version. REQUIRES: the lock. */
  SessionChannel.Loaded newSession() {
    return new SessionChannel.Loaded(nextSession(), 0);
  }

  private LoadedVersion load(String method, ObjectNode arguments) {
    forgetVersion();
    boolean wasOpen = engine.isOpen();
    JsonNode answer = callLoad(method, arguments);
    boolean loadEmpty = arguments.get("load_empty").asBoolean();
    StoreVersion loaded = StoreVersion.of(answer);
    boolean isReset =
        loadEmpty
            || cache.version() != loaded.version()
            || !Objects.equals(cache.checkpointId(), loaded.checkpointId());
    if (isReset) {
      cache.reset(loaded.version(), loaded.checkpointId(), loadEmpty || loaded.version() == 0);
    }
    Set<Integer> gone = new TreeSet<>(familyIds);
    for (FamilyInfo family : loaded.families().values()) {
      gone.remove(family.id());
      familyIds.add(family.id());
      cache.defineFamily(family.id(), family.isOrdered(), family.isMulti());
    }
    for (int family : gone) {
      familyIds.remove(family);
      cache.dropFamily(family);
    }
    // A later session cannot start from a version whose content was left out. In checkpoint format
    // 1 another attempt may replace the version: only versions that this instance commits are
    // trusted.
    setCurrent(loadEmpty ? null : loaded, false);
    loadedBytes = answer.path("data_bytes").asLong() * ENTRY_OVERHEAD_FACTOR;
    snapshots.noteLoaded(snapshotOf(answer));
    return new LoadedVersion(
        loaded,
        arguments.get("session").asLong(),
        answer,
        loadEmpty,
        wasOpen ? 0 : engine.takeStartMs());
  }

  /** Lets a session fill the cache, now or when that is worth it. REQUIRES: the lock. */
  void fill(CacheSession session, LoadedVersion loaded) {
    if (isRefillDue(loaded.version())) {
      session.refillOnDemand();
    }
  }

  private boolean isRefillDue(StoreVersion version) {
    boolean isCounted = conf.isCountingRows && version.isCounted();
    long keys = isCounted ? version.keys(true) + version.keys(false) : estimatedKeys;
    if (keys < 0) {
      keys = loadedBytes / MIN_BYTES_PER_KEY;
    }
    long loadedBytesPerKey = keys == 0 ? 0 : loadedBytes / keys;
    cache.expectRows(keys, Math.max(MIN_BYTES_PER_KEY, loadedBytesPerKey));
    return cache.isRefillDue();
  }

  /** After an error of the engine the next session loads the version again. */
  @Override
  public void refillIfIdle() {
    if (!lock.tryAcquire()) {
      return;
    }
    lockHolder = LockHolder.ofThisThread();
    try {
      StoreVersion version = current;
      boolean mayRefill =
          !isClosed && version != null && version.version() == cache.version() && engine.isOpen();
      if (mayRefill && isRefillDue(version)) {
        refill(version);
      }
    } finally {
      unlock();
    }
  }

  private void refill(StoreVersion version) {
    SessionChannel channel =
        new SessionChannel(
            engine,
            version.version(),
            newSession(),
            () -> {
              throw CairnException.workerLost("the worker was lost during a refill", null);
            });
    try {
      refill(cache.begin(channel));
    } finally {
      channel.close();
      if (channel.needsReload()) {
        forgetVersion();
      }
    }
  }

  /**
   * Refills and ends the session. After an Error the cache is empty, and the next session loads.
   */
  private void refill(CacheSession session) {
    try {
      try {
        session.refillUntil(() -> isClosed || lock.hasQueuedThreads());
      } finally {
        session.abort();
      }
    } catch (Error e) {
      // It may have come in the middle of any change.
      cache.reset(-1, null, false);
      forgetVersion();
      throw e;
    }
  }

  @Override
  public long paidRows() {
    return cache.paidRows();
  }

  /** The cache's figures at the end of the previous session. REQUIRES: the lock. */
  StateCache.Stats lastStats() {
    return lastStats;
  }

  /**
   * Ends a session: releases the lock, and offers the store for a refill if it lacks rows.
   *
   * @param stats the cache's figures, as the session reports them
   */
  void endSession(StateCache.Stats stats) {
    lastStats = stats;
    StoreVersion version = current;
    boolean isDue = version != null && isRefillDue(version);
    unlock();
    if (isDue) {
      RefillThread.offer(this);
    }
  }

  /**
   * Loads the same version under a new session, in the worker that now serves the instance.
   * REQUIRES: the lock.
   */
  SessionChannel.Loaded reload(StoreVersion version, boolean loadEmpty) {
    ObjectNode arguments = loadArguments(version.version(), version.checkpointId(), loadEmpty);
    JsonNode answer = callLoad("load", arguments);
    if (!Objects.equals(StoreVersion.of(answer).checkpointId(), version.checkpointId())) {
      throw CairnException.of(
              ErrorKind.CONFLICT,
              "CAIRN_FENCED",
              "another attempt replaced the version of this session after its worker was lost",
              "none if another task of the query continues")
          .at(name, version.version());
    }
    return new SessionChannel.Loaded(
        arguments.get("session").asLong(), answer.path("applied_through").asLong());
  }

  private boolean isAt(StoreVersion now, long version, String checkpointId) {
    if (now.version() != version) {
      return false;
    }
    if (version == 0) {
      return true;
    }
    return checkpointId != null ? checkpointId.equals(now.checkpointId()) : isTrusted;
  }

  /** Sets the version after a commit; {@code trusted} once its task has succeeded. */
  void committed(StoreVersion version, boolean trusted) {
    setCurrent(version, trusted);
    familyIds.clear();
    version.families().values().forEach(family -> familyIds.add(family.id()));
  }

  /** Trusts a committed version, because its task has succeeded. */
  void trust(StoreVersion version) {
    if (current == version) {
      isTrusted = true;
    }
  }

  /** Forgets the version after an error, or a commit of unknown outcome: the next session loads. */
  void forgetVersion() {
    setCurrent(null, false);
  }

  private void setCurrent(StoreVersion version, boolean trusted) {
    current = version;
    isTrusted = trusted;
  }

  /** The families of a commit as JSON. REQUIRES: the lock. */
  String familiesJson(Collection<FamilyInfo> families) {
    List<FamilyInfo> now = List.copyOf(families);
    if (!lastFamilies.equals(now)) {
      lastFamilies = now;
      lastFamiliesJson = StoreVersion.json(now);
    }
    return lastFamiliesJson;
  }

  /** The beginning of the JSON object that describes the attempt of a commit. */
  String attemptJson() {
    return attemptJson;
  }

  private String newAttemptJson() {
    SparkEnv env = SparkEnv.get();
    String startMs = env == null ? "0" : env.conf().get("spark.app.startTime", "0");
    return "{\"run_id\":"
        + CommitRequest.quoted(runId)
        + ",\"app_start_ms\":"
        + Long.parseLong(startMs);
  }

  /** The newest uploaded snapshot that an answer names, or 0. */
  private static long snapshotOf(JsonNode answer) {
    return answer.path("snapshot_version").asLong();
  }

  /** Notes the snapshot and the size that the reply to a commit has. */
  void noteCommit(CommitReply reply) {
    estimatedKeys = reply.estimatedKeys();
    snapshots.note(reply.snapshotVersion());
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

  /** The version that is loaded, or -1. */
  public long version() {
    StoreVersion now = current;
    return now == null ? -1 : now.version();
  }

  /** Runs a snapshot, a clean-up, or both, if the store is open in a living worker. */
  public void maintain(boolean snapshot, boolean cleanup) {
    ObjectNode arguments = Json.object().put("snapshot", snapshot).put("cleanup", cleanup);
    if (storeConf.unloadOnCommit()) {
      // The store is closed next, which would end the upload of a snapshot.
      arguments.put("wait_ms", conf.worker.timeouts().silenceMs() / 2);
    }
    // Temporary credentials may have been renewed since.
    arguments.set("storage", location.isS3() ? storage() : null);
    JsonNode answer = engine.callIfOpen("maintain", arguments);
    if (answer != null) {
      snapshots.note(snapshotOf(answer));
    }
  }

  /** Closes the store, at once or when its running session ends. Idempotent. */
  public void close() {
    isClosed = true;
    closeIfIdle();
  }

  private void closeIfIdle() {
    if (lock.tryAcquire()) {
      try {
        cache.close();
        engine.close();
      } catch (CairnException e) {
        LOG.warn("closing store {}: {}", name, e.getMessage());
      } finally {
        // A thread that waits for the lock learns at once that the store is closed.
        lock.release();
      }
    }
  }
}
