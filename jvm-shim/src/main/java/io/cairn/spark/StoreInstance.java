package io.cairn.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.cache.StateCache;
import io.cairn.spark.cache.memory.MemoryPool;
import io.cairn.spark.codec.FamilyInfo;
import io.cairn.spark.engine.EngineInstance;
import io.cairn.spark.engine.SessionChannel;
import io.cairn.spark.engine.WorkerPool;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.settings.S3Settings;
import io.cairn.spark.settings.StorageLocation;
import java.io.IOException;
import java.nio.file.Files;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.RocksDBEventForwarder;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One provider object's store: its cache, its half in a worker, the version that both stand at, and
 * the turn of its sessions.
 *
 * <p>One session at a time; maintenance beside it. Starts nothing before the first session.
 */
final class StoreInstance {
  private static final Logger LOG = LoggerFactory.getLogger(StoreInstance.class);
  private static final ConcurrentHashMap<Long, MemoryPool> BUDGETS = new ConcurrentHashMap<>();

  /**
   * Heap that an entry of the cache takes beside its own bytes, generously: for the guess whether a
   * state fits.
   */
  private static final int ENTRY_OVERHEAD_FACTOR = 3;

  final StateStoreId id;
  final String name;
  final String runId;
  final StoreSettings conf;
  final StateStoreConf storeConf;
  final Configuration hadoop;
  final EngineInstance engine;
  final StateCache cache;
  private final StorageLocation location;
  private final MemoryPool budget;
  private final Semaphore turn = new Semaphore(1, true);
  private final SnapshotReports snapshots = new SnapshotReports(this::reportSnapshot);
  private volatile String holder = "";
  private volatile boolean isClosed;
  private int sessions;

  /**
   * Families that the cache knows of committed versions. INVARIANT: touched by whoever has the
   * turn.
   */
  private final Set<Integer> familyIds = new TreeSet<>();

  /** INVARIANT: changed by whoever has the turn. Null: not known, the engine must be asked. */
  private volatile StoreVersion standing;

  private volatile boolean isTrusted;

  StoreInstance(
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
    location = StorageLocation.of(id.storeCheckpointLocation(), hadoop);
    // Read once here, so that a fault is found in init; read again at each opening, as keys may
    // have changed.
    storage();
    budget = BUDGETS.computeIfAbsent(conf.cacheMemoryBytes, SparkMemoryConsumer::register);
    cache = new StateCache(budget);
    String group = id.checkpointRootLocation() + "#" + id.operatorId() + "/" + id.partitionId();
    engine = new EngineInstance(WorkerPool.of(conf.worker), group, name, this::openArguments);
  }

  /**
   * Makes the store's folder where folders are real: the state data source counts partitions by
   * listing them.
   */
  void makeFolder() {
    if (location.isFile()) {
      try {
        Files.createDirectories(java.nio.file.Path.of(location.url()));
      } catch (IOException e) {
        throw CairnException.of(
            ErrorKind.INVALID,
            "CAIRN_ACCESS_DENIED",
            "cannot make the folder of store " + name + ": " + e.getMessage(),
            "see who may write there",
            e);
      }
    }
  }

  private ObjectNode openArguments() {
    ObjectNode arguments = EngineInstance.object();
    arguments
        .putObject("store")
        .put("operator", id.operatorId())
        .put("partition", id.partitionId())
        .put("name", id.storeName());
    arguments.put("url", location.url());
    arguments.set("storage", storage());
    arguments.set("conf", conf.engineConf());
    arguments.put("run_id", runId);
    arguments.put("checkpoint_format", storeConf.enableStateStoreCheckpointIds() ? 2 : 1);
    return arguments;
  }

  private ObjectNode storage() {
    ObjectNode settings = EngineInstance.object();
    if (location.isS3()) {
      S3Settings.of(hadoop, location.bucket(), conf.values).forEach(settings::put);
    }
    return settings;
  }

  /** Takes the store's turn; it ends with {@link #endTurn}. */
  void takeTurn(String who) {
    requireOpen();
    try {
      if (!turn.tryAcquire(conf.lockTimeoutMs, TimeUnit.MILLISECONDS)) {
        throw CairnException.of(
            ErrorKind.RETRY,
            "CAIRN_BUSY",
            "store " + name + " was not released within " + conf.lockTimeoutMs + " ms by " + holder,
            "end that task, or raise spark.sql.streaming.stateStore.cairn.lockTimeoutMs");
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw CairnException.of(
          ErrorKind.RETRY,
          "CAIRN_BUSY",
          "the task was cancelled while store " + name + " was held by " + holder,
          null);
    }
    if (isClosed) {
      // Read once: closed between two reads of it, the store would never be given back.
      endTurn();
      throw CairnException.closed(name);
    }
    holder = who;
  }

  private void requireOpen() {
    if (isClosed) {
      throw CairnException.closed(name);
    }
  }

  /** Gives the turn back; a provider closed meanwhile is closed now. */
  void endTurn() {
    holder = "";
    turn.release();
    if (isClosed) {
      closeIfIdle();
    }
  }

  /** Makes cache and engine stand at a version. REQUIRES: the turn. */
  LoadedVersion load(long version, String checkpointId, boolean loadEmpty) {
    StoreVersion now = standing;
    if (now != null && !loadEmpty && isStandingAt(now, version, checkpointId)) {
      return new LoadedVersion(now, ++sessions, null, false, false, 0);
    }
    int number = ++sessions;
    forget();
    boolean wasOpen = engine.isWhereItWas();
    JsonNode answer =
        engine.callRepeating("load", loadArguments(number, version, checkpointId, loadEmpty));
    return stand(answer, number, loadEmpty, wasOpen);
  }

  /**
   * Makes cache and engine stand at a version, made of a snapshot and the changelogs after it.
   * REQUIRES: the turn.
   */
  LoadedVersion loadSnapshot(
      long snapshotVersion, String snapshotId, long version, String checkpointId) {
    int number = ++sessions;
    forget();
    ObjectNode arguments = loadArguments(number, version, checkpointId, false);
    arguments.put("snapshot_version", snapshotVersion).put("snapshot_checkpoint_id", snapshotId);
    boolean wasOpen = engine.isWhereItWas();
    return stand(engine.callRepeating("load_snapshot", arguments), number, false, wasOpen);
  }

  private ObjectNode loadArguments(
      int number, long version, String checkpointId, boolean loadEmpty) {
    return EngineInstance.object()
        .put("session", sessionId(number))
        .put("version", version)
        .put("checkpoint_id", checkpointId)
        .put("load_empty", loadEmpty);
  }

  private LoadedVersion stand(JsonNode answer, int number, boolean loadEmpty, boolean wasOpen) {
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
    for (int id : gone) {
      familyIds.remove(id);
      cache.dropFamily(id);
    }
    // What was loaded empty is no version that a later session may start from.
    standing = loadEmpty ? null : loaded;
    // In checkpoint format 1 another attempt may replace the version later: only what this instance
    // commits itself is used again unasked.
    isTrusted = false;
    noteSnapshot(answer.path("snapshot_version").asLong());
    return new LoadedVersion(
        loaded,
        number,
        answer,
        loadEmpty,
        isReset && fitsCache(answer),
        wasOpen ? 0 : engine.takeStartMs());
  }

  /** Whether the state that a load found is worth streaming into the cache as a whole. */
  private boolean fitsCache(JsonNode answer) {
    long bytes = answer.path("data_bytes").asLong();
    return bytes > 0
        && bytes * ENTRY_OVERHEAD_FACTOR <= budget.limitBytes() - budget.accountedBytes();
  }

  /**
   * Loads the same version into whatever worker serves the instance now, for the rest of a session.
   * REQUIRES: the turn.
   */
  SessionChannel.Reloaded loadAgain(StoreVersion base, boolean loadEmpty) {
    int number = ++sessions;
    JsonNode answer =
        engine.callRepeating(
            "load", loadArguments(number, base.version(), base.checkpointId(), loadEmpty));
    StoreVersion loaded = StoreVersion.of(answer);
    if (!Objects.equals(loaded.checkpointId(), base.checkpointId())) {
      throw CairnException.of(
              ErrorKind.CONFLICT,
              "CAIRN_FENCED",
              "another attempt replaced the version that this session was opened at, while its"
                  + " worker was lost",
              "none if another task of the query goes on")
          .at(name, base.version());
    }
    LOG.info("store {} goes on at version {} in another worker", name, base.version());
    return new SessionChannel.Reloaded(number, answer.path("applied_through").asLong());
  }

  private boolean isStandingAt(StoreVersion now, long version, String checkpointId) {
    if (now.version() != version) {
      return false;
    }
    if (version == 0) {
      return true;
    }
    return checkpointId != null ? checkpointId.equals(now.checkpointId()) : isTrusted;
  }

  /**
   * Notes that a session's commit is durable: the store stands there, trusted once its task has
   * ended well.
   */
  void committed(StoreVersion version, boolean trusted) {
    standing = version;
    isTrusted = trusted;
    familyIds.clear();
    version.families().values().forEach(family -> familyIds.add(family.id()));
  }

  /** Trusts the version that a task committed, the task having ended well. */
  void trust(StoreVersion version) {
    if (standing == version) {
      isTrusted = true;
    }
  }

  /**
   * Forgets where the store stands, after a commit of unknown outcome or an error of the engine:
   * the next load asks it.
   */
  void forget() {
    standing = null;
    isTrusted = false;
  }

  /** Takes note of the newest uploaded snapshot, and tells Spark's coordinator. */
  void noteSnapshot(long version) {
    snapshots.note(version);
  }

  private void reportSnapshot(long version) {
    if (storeConf.reportSnapshotUploadLag()) {
      new RocksDBEventForwarder(runId, id).reportSnapshotUploaded(version);
    }
  }

  /** Newest snapshot known, or -1. */
  long snapshotVersion() {
    return snapshots.newest();
  }

  /** Version that the store stands at, or -1. */
  long version() {
    StoreVersion now = standing;
    return now == null ? -1 : now.version();
  }

  long sessionId(int number) {
    return (long) engine.number() << 32 | number;
  }

  /** Snapshot, clean-up, or both; nothing if the store was never opened or its worker is gone. */
  void maintain(boolean snapshot, boolean cleanup) {
    ObjectNode arguments =
        EngineInstance.object().put("snapshot", snapshot).put("cleanup", cleanup);
    if (location.isS3()) {
      // Temporary keys may have been renewed since.
      arguments.set("storage", storage());
    } else {
      arguments.putNull("storage");
    }
    JsonNode answer = engine.callIfOpen("maintain", arguments);
    if (answer != null) {
      noteSnapshot(answer.path("snapshot_version").asLong());
    }
  }

  /** Closes the store, at once or when its running session ends. Idempotent. */
  void close() {
    isClosed = true;
    closeIfIdle();
  }

  private void closeIfIdle() {
    if (turn.tryAcquire()) {
      try {
        cache.close();
        engine.close();
      } catch (CairnException e) {
        LOG.warn("closing store {}: {}", name, e.getMessage());
      } finally {
        // Whoever waits for the turn learns at once that the store is closed.
        turn.release();
      }
    }
  }
}
