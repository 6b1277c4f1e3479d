package io.cairn.spark.session;

import io.cairn.spark.cache.CacheSession;
import io.cairn.spark.cache.StateCache;
import io.cairn.spark.protocol.CommitReply;

/** Decides whether the cache of a store is worth a refill, by an estimate of the version's size. */
final class StoreRefill {
  /**
   * Heap per byte of keys and values in the cache, with its overhead: a high estimate, to decide
   * whether a state probably fits.
   */
  private static final int ENTRY_OVERHEAD_FACTOR = 3;

  /** Least heap per key that is assumed where nothing is known. */
  private static final int MIN_BYTES_PER_KEY = 100;

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
  StoreRefill(StateCache cache, boolean isCountingRows) {
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
}
