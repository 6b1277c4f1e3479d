package io.cairn.spark.session;

import io.cairn.spark.cache.CacheSession;
import io.cairn.spark.cache.StateCache;
import io.cairn.spark.codec.ColumnFamily;
import io.cairn.spark.codec.FamilyInfo;
import io.cairn.spark.codec.TypeText;
import io.cairn.spark.engine.SessionChannel;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.protocol.CommitReply;
import io.cairn.spark.protocol.CommitRequest;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors;
import org.apache.spark.util.TaskCompletionListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A store opened at one version: its families, the lock of its row calls, and its one end, by
 * commit, abort or release.
 *
 * <p>It ends at the latest with the task that opened it: Spark does not release the read stores of
 * aggregations. It ends under the session's monitor, because the listener of a cancelled task may
 * run concurrently, and only while no row call runs, because the next session uses the same
 * channel, cache and codecs.
 */
public final class StoreSession {
  private static final Logger LOG = LoggerFactory.getLogger(StoreSession.class);

  /** It changes once, from OPEN. */
  private enum State {
    OPEN,
    COMMITTED,
    ABORTED,
    RELEASED
  }

  /** A family whose rows can be read and written. */
  public record OpenFamily(ColumnFamily family, int id) {}

  public final StoreInstance store;
  public final ColumnFamilies families;

  /** The version that was loaded. */
  public final StoreVersion baseVersion;

  public final CacheSession cache;
  public final SessionChannel channel;
  private final LoadedVersion loaded;
  private final StateCache.Stats statsBefore;
  private final long loadMs;
  private final TaskContext task = TaskContext.get();

  /** Held by each row call, and by the end of the session. */
  private final ReentrantLock rowLock = new ReentrantLock();

  private final Map<String, FamilyInfo> present;
  private final Map<String, OpenFamily> open = new HashMap<>();
  private int maxFamilyId;
  private boolean isForcingSnapshot;
  private volatile State state = State.OPEN;
  private volatile StoreVersion result;
  private volatile CommitReply commitReply = CommitReply.NONE;
  private long commitMs;

  /** The cache's counters after the last row call; null before. */
  private volatile StateCache.Stats counters;

  /**
   * Acquires the store's lock, loads a version, and opens a session that ends with the running
   * task.
   *
   * @param load loads the version under the lock
   */
  public static StoreSession open(
      StoreInstance store,
      ColumnFamilies families,
      boolean isForcingSnapshot,
      Supplier<LoadedVersion> load) {
    long startedNs = System.nanoTime();
    store.lock.acquire();
    StoreSession session = null;
    try {
      LoadedVersion loaded = load.get();
      store.snapshots.noteLoaded(loaded.snapshotVersion());
      session = new StoreSession(store, families, loaded, isForcingSnapshot, startedNs);
    } finally {
      if (session == null) {
        store.current.forget();
        store.lock.release();
      }
    }
    session.endWithTask();
    return session;
  }

  private StoreSession(
      StoreInstance store,
      ColumnFamilies families,
      LoadedVersion loaded,
      boolean isForcingSnapshot,
      long startedNs) {
    this.store = store;
    this.families = families;
    this.loaded = loaded;
    this.baseVersion = loaded.version();
    this.isForcingSnapshot = isForcingSnapshot;
    statsBefore = store.lastStats();
    present = new TreeMap<>(baseVersion.families());
    maxFamilyId = baseVersion.maxFamilyId();
    channel =
        new SessionChannel(
            store.engine,
            baseVersion.version(),
            loaded.session(),
            () -> store.current.reload(loaded));
    cache = store.cache.begin(channel);
    try {
      store.refill.begin(cache, loaded);
      open(families.get(ColumnFamilies.DEFAULT));
    } catch (RuntimeException | Error e) {
      try {
        cache.abort();
      } finally {
        channel.close();
      }
      throw e;
    }
    loadMs = Math.round((System.nanoTime() - startedNs) / 1e6);
  }

  private void endWithTask() {
    if (task != null) {
      task.addTaskCompletionListener((TaskCompletionListener) this::endOfTask);
      if (task.isFailed()) {
        abort();
        throw CairnException.of(
            ErrorKind.RETRY,
            "CAIRN_BUSY",
            "store " + store.name + " was opened by a task that has already failed",
            null);
      }
    }
  }

  private void endOfTask(TaskContext ended) {
    boolean hasSucceeded = !ended.isFailed() && !ended.isInterrupted();
    StoreVersion committed;
    synchronized (this) {
      committed = state == State.COMMITTED ? result : null;
    }
    if (committed == null) {
      abort();
    } else if (hasSucceeded) {
      store.current.trust(committed);
    }
  }

  /** Opens a declared family at this version: with its id in the version, or a new one. */
  public OpenFamily open(ColumnFamily family) {
    OpenFamily known = open.get(family.name());
    if (known != null && known.family == family) {
      return known;
    }
    if (known != null && !family.name().equals(ColumnFamilies.DEFAULT)) {
      FamilyCheck.requireSameTypes(
          store.name, baseVersion, known.family.info(known.id), family.info(known.id));
    }
    FamilyInfo stored = present.get(family.name());
    boolean isNew = stored == null;
    int newId = family.name().equals(ColumnFamilies.DEFAULT) ? 0 : maxFamilyId + 1;
    FamilyInfo declared = family.info(isNew ? newId : stored.id());
    if (isNew) {
      maxFamilyId = Math.max(maxFamilyId, newId);
    } else {
      FamilyCheck.requireReadable(store.name, baseVersion, stored, declared, present.size() == 1);
    }
    if (isNew
        || stored.isMulti() != declared.isMulti()
        || !TypeText.sameKeys(stored, declared)
        || !FamilyCheck.isSameEncoding(stored, declared)) {
      present.put(family.name(), declared);
    }
    cache.createFamily(declared.id(), declared.isOrdered(), declared.isMulti());
    OpenFamily opened = new OpenFamily(family, declared.id());
    open.put(family.name(), opened);
    return opened;
  }

  /** Returns a family by name; throws Spark's error if it does not exist at this version. */
  public OpenFamily family(String operation, String name) {
    OpenFamily found = open.get(name);
    if (found == null) {
      ColumnFamily declared = families.get(name);
      if (declared == null || !present.containsKey(name) && !families.isRegistered(name)) {
        throw StateStoreErrors.unsupportedOperationOnMissingColumnFamily(operation, name);
      }
      found = open(declared);
    }
    return found;
  }

  /** The families of this version by name, with those that the session created. */
  public Map<String, FamilyInfo> present() {
    return present;
  }

  /** A copy of their names. Any thread may ask, also while another creates a family. */
  public Set<String> familyNames() {
    rowLock.lock();
    try {
      return new TreeSet<>(present.keySet());
    } finally {
      rowLock.unlock();
    }
  }

  public boolean dropFamily(String name) {
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
  public void enter(String operation) {
    rowLock.lock();
    if (state != State.OPEN) {
      rowLock.unlock();
      requireOpen(operation);
    }
  }

  public void leave() {
    rowLock.unlock();
  }

  /** Runs work while no row call runs, also after the end of the session. */
  public void whileNoRowCall(Runnable work) {
    rowLock.lock();
    try {
      work.run();
    } finally {
      rowLock.unlock();
    }
  }

  private void requireOpen(String operation) {
    if (state != State.OPEN) {
      throw StateStoreErrors.stateStoreOperationOutOfOrder(
          "Cannot " + operation + " after the store was " + state.name().toLowerCase(Locale.ROOT));
    }
  }

  /**
   * Commits the session's writes as a version. After an error the session is aborted, unless the
   * version is known to be durable. Afterwards another thread folds the writes into the cache;
   * until it has ended, the store is locked.
   */
  public synchronized void commit() {
    whileNoRowCall(
        () -> {
          requireOpen("commit");
          long startedNs = System.nanoTime();
          try {
            commitReply = channel.commit(commitRequest(), this::sendWrites);
            result = baseVersion.next(commitReply, present, maxFamilyId);
          } catch (RuntimeException | Error e) {
            // The outcome is unknown.
            store.current.forget();
            abortAs(State.ABORTED);
            throw e;
          }
          try {
            store.current.committed(result, task == null);
            if (channel.needsReload()) {
              // As after an abort. The version is durable, and the cache keeps its rows.
              store.current.forget();
            }
            store.refill.noteCommit(commitReply);
            store.snapshots.note(commitReply.snapshotVersion());
            commitMs = Math.round((System.nanoTime() - startedNs) / 1e6);
          } finally {
            endCommitted();
          }
        });
  }

  /** Sends the writes. Runs again after the loss of the worker. */
  private void sendWrites() {
    cache.sendWrites();
    counters = store.cache.publishSession();
  }

  /** Ends a committed session when its writes are folded. REQUIRES: no row call runs. */
  private void endCommitted() {
    state = State.COMMITTED;
    try {
      closeChannel();
    } finally {
      FoldThreads.execute(this::fold);
    }
  }

  private void fold() {
    try {
      store.lock.takeOver();
      cache.commit(result.version(), result.checkpointId());
    } catch (Throwable failure) {
      LOG.warn(
          "store {}: version {} is committed, but its cache is emptied, because the fold of the"
              + " writes failed; the next session loads the version",
          store.name,
          result.version(),
          failure);
      store.current.forget();
      cache.abort();
    } finally {
      store.endSession(counters);
    }
  }

  private CommitRequest commitRequest() {
    CommitRequest request =
        new CommitRequest()
            .put("version", baseVersion.version() + 1)
            .put("base_checkpoint_id", baseVersion.checkpointId())
            .putJson("column_families", store.commitJson.families(present.values()))
            .put("max_cf_id", maxFamilyId)
            .putJson("attempt", store.commitJson.attempt(task))
            .put("snapshot", isForcingSnapshot)
            .put("track_counts", store.conf.isCountingRows)
            .put("are_distinct", !cache.mayRepeatKeys())
            .put("expected_rows", cache.expectedRows());
    Long digest = cache.expectedDigest();
    return digest == null ? request : request.put("expected_digest", digest);
  }

  /** Drops the session's writes. Idempotent; does nothing after commit or release. */
  public void abort() {
    endIfOpen(State.ABORTED);
  }

  /** Releases the store unchanged. Idempotent. */
  public void release() {
    endIfOpen(State.RELEASED);
  }

  private synchronized void endIfOpen(State fate) {
    whileNoRowCall(
        () -> {
          if (state == State.OPEN) {
            abortAs(fate);
          }
        });
  }

  /** Ends the session without a version. REQUIRES: no row call runs. */
  private void abortAs(State fate) {
    state = fate;
    try {
      if (channel.needsReload()) {
        // A broken local database stays broken until the next load.
        store.current.forget();
      }
      cache.abort();
      channel.abort();
    } catch (CairnException e) {
      LOG.warn("store {}: the engine did not receive an abort: {}", store.name, e.getMessage());
    } finally {
      counters = store.cache.stats();
      try {
        closeChannel();
      } finally {
        store.endSession(counters);
      }
    }
  }

  private void closeChannel() {
    open.values().forEach(known -> known.family().codec().clear());
    channel.close();
  }

  /** Makes the commit upload a snapshot, if {@code force}. */
  public void forceSnapshot(boolean force) {
    isForcingSnapshot |= force;
  }

  public boolean isForcingSnapshot() {
    return isForcingSnapshot;
  }

  public boolean isOpen() {
    return state == State.OPEN;
  }

  public boolean isCommitted() {
    return state == State.COMMITTED;
  }

  /** Whether Spark names versions by ids: checkpoint format 2. */
  public boolean hasCheckpointIds() {
    return store.storeConf.enableStateStoreCheckpointIds();
  }

  /** The committed version; null before the commit. */
  public StoreVersion result() {
    return result;
  }

  /** The engine's reply to the commit; {@link CommitReply#NONE} before the commit. */
  public CommitReply commitReply() {
    return commitReply;
  }

  /** The load at the session's start. */
  public LoadedVersion loaded() {
    return loaded;
  }

  public long loadMs() {
    return loadMs;
  }

  public long commitMs() {
    return commitMs;
  }

  /**
   * Present figures of the store's cache; its counters are those of the session's last row call.
   */
  public StateCache.Stats stats() {
    StateCache.Stats now = store.cache.stats();
    StateCache.Stats last = counters;
    return last == null ? now : now.withCountersOf(last);
  }

  /** Figures of the store's cache at the end of the previous session. */
  public StateCache.Stats statsBefore() {
    return statsBefore;
  }
}
