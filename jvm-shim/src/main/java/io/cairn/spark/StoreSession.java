package io.cairn.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.cache.CacheSession;
import io.cairn.spark.cache.StateCache;
import io.cairn.spark.codec.ColumnFamily;
import io.cairn.spark.codec.FamilyInfo;
import io.cairn.spark.codec.TypeText;
import io.cairn.spark.engine.EngineInstance;
import io.cairn.spark.engine.SessionChannel;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.protocol.SentWrites;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors;
import org.apache.spark.util.TaskCompletionListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A store opened at one version, with one fate: its families, its writes, and their commit, abort
 * or release.
 *
 * <p>Ends by itself with the task in which it was opened: Spark forgets the read stores of
 * aggregations. The fate is decided under the session's lock, as the listener of a cancelled task
 * may run beside it, and only while no row call runs: what comes after it uses channel, base and
 * codecs.
 */
final class StoreSession {
  private static final Logger LOG = LoggerFactory.getLogger(StoreSession.class);

  final StoreInstance store;
  final ColumnFamilies families;
  final StoreVersion base;
  final CacheSession cache;
  final SessionChannel engine;
  final JsonNode loaded;
  final long loadMs;
  final long workerStartMs;
  final StateCache.Stats statsBefore;
  private final TaskContext task;
  private final SessionLock rows = new SessionLock();
  private final Map<String, FamilyInfo> present;
  private final Map<String, OpenFamily> open = new HashMap<>();
  private int maxFamilyId;
  private boolean isForcingSnapshot;
  private volatile SessionState state = SessionState.OPEN;
  private volatile StoreVersion result;
  private volatile JsonNode commitAnswer;
  private long commitMs;

  /** A family that rows can be read from and written to. */
  record OpenFamily(ColumnFamily family, int id) {}

  /** REQUIRES: the store's turn, which the session gives back at its end. */
  StoreSession(
      StoreInstance store,
      ColumnFamilies families,
      LoadedVersion opening,
      boolean isForcingSnapshot,
      long startedNs) {
    this.store = store;
    this.families = families;
    this.base = opening.base();
    this.loaded = opening.answer();
    this.isForcingSnapshot = isForcingSnapshot;
    this.workerStartMs = opening.workerStartMs();
    this.statsBefore = store.cache.stats();
    this.task = TaskContext.get();
    present = new TreeMap<>(base.families());
    maxFamilyId = base.maxFamilyId();
    long applied = loaded == null ? 0 : loaded.path("applied_through").asLong();
    engine =
        new SessionChannel(
            store.engine,
            base.version(),
            opening.number(),
            applied,
            () -> store.loadAgain(base, opening.isLoadedEmpty()));
    cache = store.cache.begin(engine);
    try {
      if (opening.isWorthLoading()) {
        cache.loadCommitted();
      }
      open(families.get(ColumnFamilies.DEFAULT));
    } catch (RuntimeException | Error e) {
      cache.abort();
      engine.close();
      throw e;
    }
    loadMs = (System.nanoTime() - startedNs) / 1_000_000;
  }

  /** Ends the session with the task that runs now, if one does. */
  void endWithTask() {
    if (task != null) {
      task.addTaskCompletionListener((TaskCompletionListener) this::endOfTask);
      if (task.getTaskFailure().isDefined()) {
        abort();
        throw CairnException.of(
            ErrorKind.RETRY,
            "CAIRN_BUSY",
            "store " + store.name + " was opened by a task that has failed already",
            null);
      }
    }
  }

  private void endOfTask(TaskContext ended) {
    boolean endedWell = ended.getTaskFailure().isEmpty() && !ended.isInterrupted();
    StoreVersion committed;
    synchronized (this) {
      committed = state == SessionState.COMMITTED ? result : null;
    }
    if (committed == null) {
      abort();
    } else if (endedWell) {
      store.trust(committed);
    }
  }

  /**
   * Makes a declared family usable at this version: with the id that the version has for it, or a
   * new one.
   */
  OpenFamily open(ColumnFamily family) {
    OpenFamily already = open.get(family.name());
    if (already != null && already.family == family) {
      return already;
    }
    FamilyInfo stored = present.get(family.name());
    OpenFamily opened;
    if (stored != null) {
      FamilyInfo declared = family.info(stored.id());
      checkSame(stored, declared);
      if (!TypeText.sameKeys(stored, declared)) {
        present.put(family.name(), declared);
      }
      cache.createFamily(stored.id(), declared.isOrdered(), stored.isMulti());
      opened = new OpenFamily(family, stored.id());
    } else {
      int id = family.name().equals(ColumnFamilies.DEFAULT) ? 0 : ++maxFamilyId;
      FamilyInfo made = family.info(id);
      present.put(family.name(), made);
      cache.createFamily(id, made.isOrdered(), made.isMulti());
      opened = new OpenFamily(family, id);
    }
    open.put(family.name(), opened);
    return opened;
  }

  /**
   * A family without keys may be declared anew: Spark's state reader opens {@code default} of newer
   * joins, which never use it, with keys of another.
   */
  private void checkSame(FamilyInfo stored, FamilyInfo declared) {
    // Not counted, by trackTotalNumberOfRows, is not without.
    Long keys = base.counts().get(stored.id());
    boolean hasKeys = keys == null || keys != 0;
    if (stored.isMulti() != declared.isMulti() || hasKeys && !TypeText.sameKeys(stored, declared)) {
      throw CairnException.of(
              ErrorKind.INVALID,
              "CAIRN_SCHEMA_MISMATCH",
              "column family '"
                  + stored.name()
                  + "' has keys of "
                  + stored.keyType()
                  + (stored.isMulti() ? " with lists" : "")
                  + ", but the query declares "
                  + declared.keyType()
                  + (declared.isMulti() ? " with lists" : ""),
              "run the query that wrote this checkpoint, or start the changed one with a new"
                  + " checkpointLocation")
          .at(store.name, base.version());
    }
  }

  /** The family by name; an error as Spark's if it does not exist at this version. */
  OpenFamily family(String operation, String name) {
    OpenFamily found = open.get(name);
    if (found == null) {
      ColumnFamily declared = families.get(name);
      if (declared == null || !present.containsKey(name)) {
        throw StateStoreErrors.unsupportedOperationOnMissingColumnFamily(operation, name);
      }
      found = open(declared);
    }
    return found;
  }

  /** Whether this version has a family of the name. */
  boolean has(String name) {
    return present.containsKey(name);
  }

  Map<String, FamilyInfo> present() {
    return present;
  }

  boolean dropFamily(String name) {
    FamilyInfo dropped = present.remove(name);
    open.remove(name);
    if (dropped == null) {
      return false;
    }
    cache.dropFamily(dropped.id());
    families.forget(name);
    return true;
  }

  /** Begins a row call of an open session; it ends with {@link #leave}. */
  void enter(String operation) {
    rows.enter();
    if (state != SessionState.OPEN) {
      rows.leave();
      state.requireOpen(operation);
    }
  }

  void leave() {
    rows.leave();
  }

  /** Does what may also be done to a session that has ended. */
  void whileNoRowCall(Runnable work) {
    rows.enterToEnd();
    try {
      work.run();
    } finally {
      rows.leave();
    }
  }

  /** Makes the session's writes a version. */
  synchronized long commit() {
    rows.enterToEnd();
    try {
      state.requireOpen("commit");
      return commitAlone();
    } finally {
      rows.leave();
    }
  }

  private long commitAlone() {
    long startedNs = System.nanoTime();
    try {
      commitAnswer = sendAndCommit();
      result = base.next(commitAnswer, present, maxFamilyId);
      cache.commit(result.version(), result.checkpointId());
    } catch (RuntimeException | Error e) {
      // Whether the version exists is not known: the next load asks.
      store.forget();
      end(SessionState.ABORTED);
      throw SparkErrors.cannotCommit(
          "CairnStateStore[" + store.id + "] version " + (base.version() + 1),
          e instanceof CairnException cairn ? cairn.at(store.name, base.version() + 1) : e);
    }
    store.committed(result, task == null);
    commitMs = (System.nanoTime() - startedNs) / 1_000_000;
    end(SessionState.COMMITTED);
    store.noteSnapshot(commitAnswer.path("snapshot_version").asLong());
    if (store.storeConf.commitValidationEnabled()) {
      StateStore.reportCommitToCoordinator(result.version(), store.id, store.hadoop);
    }
    return result.version();
  }

  private JsonNode sendAndCommit() {
    try {
      SentWrites sent = cache.finishWrites();
      return engine.commit(commitArguments(), sent);
    } catch (CairnException e) {
      // More writes than the channel keeps are still in the overlay, unless some were spilled.
      if (!e.isRecoverable() || !cache.rewindWrites()) {
        throw e;
      }
      LOG.warn("store {}: {}; all its writes are sent again", store.name, e.getMessage());
      engine.startOver();
      SentWrites sent = cache.finishWrites();
      return engine.commit(commitArguments(), sent);
    }
  }

  private ObjectNode commitArguments() {
    ObjectNode arguments = EngineInstance.object();
    arguments.put("version", base.version() + 1).put("base_checkpoint_id", base.checkpointId());
    StoreVersion.addFamilies(arguments, present);
    arguments.put("max_cf_id", maxFamilyId);
    ObjectNode attempt = arguments.putObject("attempt");
    SparkEnv env = SparkEnv.get();
    attempt.put("run_id", store.runId);
    attempt.put(
        "app_start_ms",
        env == null ? 0L : Long.parseLong(env.conf().get("spark.app.startTime", "0")));
    attempt.put("stage_id", task == null ? 0 : task.stageId());
    attempt.put("stage_attempt", task == null ? 0 : task.stageAttemptNumber());
    attempt.put("task_attempt", task == null ? 0 : task.taskAttemptId());
    arguments.put("snapshot", isForcingSnapshot);
    arguments.put("track_counts", store.conf.isCountingRows);
    arguments.put("are_distinct", !cache.hasSpilled());
    return arguments;
  }

  /** Drops the session's writes. Idempotent; nothing after commit or release. */
  synchronized void abort() {
    whileNoRowCall(
        () -> {
          if (state == SessionState.OPEN) {
            end(SessionState.ABORTED);
          }
        });
  }

  /** Gives the store back unchanged. Idempotent. */
  synchronized void release() {
    whileNoRowCall(
        () -> {
          if (state == SessionState.OPEN) {
            end(SessionState.RELEASED);
          }
        });
  }

  /** REQUIRES: no row call runs. */
  private void end(SessionState fate) {
    state = fate;
    try {
      if (fate != SessionState.COMMITTED) {
        if (engine.hasFailed()) {
          // A broken local database stays broken until the engine loads afresh.
          store.forget();
        }
        cache.abort();
        engine.abort();
      }
    } catch (CairnException e) {
      LOG.warn("store {}: the engine was not told of an abort: {}", store.name, e.getMessage());
    } finally {
      engine.close();
      store.endTurn();
    }
  }

  void forceSnapshot(boolean force) {
    isForcingSnapshot |= force;
  }

  SessionState state() {
    return state;
  }

  /** The version that the commit made; null before. */
  StoreVersion result() {
    return result;
  }

  /** The engine's answer to the commit; null before. */
  JsonNode commitAnswer() {
    return commitAnswer;
  }

  long commitMs() {
    return commitMs;
  }
}
