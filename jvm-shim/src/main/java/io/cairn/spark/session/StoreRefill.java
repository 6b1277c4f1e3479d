package io.cairn.spark.session;

import io.cairn.spark.cache.CacheSession;
import io.cairn.spark.cache.StateCache;
import io.cairn.spark.engine.EngineInstance;
import io.cairn.spark.engine.SessionChannel;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.protocol.CommitReply;

/**
 * Decides whether the cache of a store is worth a refill, by an estimate of the version's size, and
 * refills it between two sessions.
 */
final class StoreRefill {
  /**
   * Heap per byte of keys and values in the cache, with its overhead: a high estimate, to decide
   * whether a state probably fits.
   */
  private static final int ENTRY_OVERHEAD_FACTOR = 3;

  /** Least heap per key that is assumed where nothing is known. */
  private static final int MIN_BYTES_PER_KEY = 100;

  private final StoreLock lock;
  private final CurrentVersion current;
  private final EngineInstance engine;
  private final StateCache cache;
  private final boolean isCountingRows;

  /** Estimated heap for the whole state at the last load. INVARIANT: used under the lock. */
  private long loadedBytes;

  /**
   * The engine's estimate at the last commit, for stores that do not count keys; -1: none.
   * INVARIANT: used under the lock.
   */
  private long estimatedKeys = -1;

  /**
   * @param isCountingRows whether versions that are committed have the number of their keys
   */
  StoreRefill(
      StoreLock lock,
      CurrentVersion current,
      EngineInstance engine,
      StateCache cache,
      boolean isCountingRows) {
    this.lock = lock;
    this.current = current;
    this.engine = engine;
    this.cache = cache;
    this.isCountingRows = isCountingRows;
  }

  /** Lets a new session fill the cache, now or when that is worth it. REQUIRES: the lock. */
  void begin(CacheSession session, LoadedVersion loaded) {
    if (!loaded.answer().isMissingNode()) {
      loadedBytes = loaded.answer().path("data_bytes").asLong() * ENTRY_OVERHEAD_FACTOR;
    }
    if (isDue(loaded.version())) {
      session.refillOnDemand();
    }
  }

  /** Notes the size that the reply to a commit has. REQUIRES: the lock. */
  void noteCommit(CommitReply reply) {
    estimatedKeys = reply.estimatedKeys();
  }

  /** Whether the cache lacks rows of the current version, and may have them. REQUIRES: the lock. */
  boolean isDue() {
    StoreVersion version = current.inCache();
    return version != null && isDue(version);
  }

  private boolean isDue(StoreVersion version) {
    boolean isCounted = isCountingRows && version.isCounted();
    long keys = isCounted ? version.keys(true) + version.keys(false) : estimatedKeys;
    if (keys < 0) {
      keys = loadedBytes / MIN_BYTES_PER_KEY;
    }
    long loadedBytesPerKey = keys == 0 ? 0 : loadedBytes / keys;
    cache.expectRows(keys, Math.max(MIN_BYTES_PER_KEY, loadedBytesPerKey));
    return cache.isRefillDue();
  }

  /** What requests have cost since the cache was complete, in rows of a refill. */
  long paidRows() {
    return cache.paidRows();
  }

  /**
   * Refills the cache if no session uses the store, until one wants it. After an error of the
   * engine the next session loads the version again.
   */
  void refillIfIdle() {
    if (!lock.tryAcquire()) {
      return;
    }
    try {
      StoreVersion version = current.inCache();
      if (version != null && engine.isOpen() && isDue(version)) {
        refill(version);
      }
    } finally {
      lock.release();
    }
  }

  private void refill(StoreVersion version) {
    SessionChannel channel =
        new SessionChannel(
            engine,
            version.version(),
            new SessionChannel.Loaded(engine.nextSession(), 0),
            () -> {
              throw CairnException.workerLost("the worker was lost during a refill", null);
            });
    try {
      refill(cache.begin(channel));
    } finally {
      channel.close();
      if (channel.needsReload()) {
        current.forget();
      }
    }
  }

  /**
   * Refills and ends the session. After an Error the cache is empty, and the next session loads.
   */
  private void refill(CacheSession session) {
    try {
      try {
        session.refillUntil(lock::isWanted);
      } finally {
        session.abort();
      }
    } catch (Error e) {
      // It may have come in the middle of any change.
      cache.reset(-1, null, false);
      current.forget();
      throw e;
    }
  }
}
