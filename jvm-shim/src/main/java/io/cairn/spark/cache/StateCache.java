package io.cairn.spark.cache;

import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.MemoryPool;
import io.cairn.spark.protocol.EngineSource;
import java.util.Set;
import java.util.concurrent.Semaphore;

/**
 * The cache of one provider instance: its committed entries, and the session that uses them.
 *
 * <p>One session or change at a time; other stores evict entries in between. {@link #version},
 * {@link #checkpointId}, {@link #stats} and {@link #close} may be called from any thread.
 */
public final class StateCache implements AutoCloseable, MemoryPool.Member {
  /**
   * The content of a cache, and its counters since it was created.
   *
   * @param entries cached rows
   * @param bytes accounted bytes of cached entries and of the write buffer
   * @param hits reads answered without the engine
   * @param misses keys that were requested from the engine
   * @param evictions slabs freed for other entries
   * @param spills write buffers sent to the engine before commit
   * @param refills refills that made the cache complete again
   * @param isComplete whether the cache has all rows of its version
   */
  public record Stats(
      long entries,
      long bytes,
      long hits,
      long misses,
      long evictions,
      long spills,
      long refills,
      boolean isComplete) {
    /** This content with the counters of other figures. */
    public Stats withCountersOf(Stats other) {
      return new Stats(
          entries,
          bytes,
          other.hits,
          other.misses,
          other.evictions,
          other.spills,
          other.refills,
          isComplete);
    }
  }

  /** Held by the open session, and by a caller that changes the entries between sessions. */
  private final Semaphore inUse = new Semaphore(1);

  private final MemoryPool pool;
  private final MemoryAccount account;
  final CommittedCache committed;

  private volatile CacheSession session;
  private volatile boolean isClosed;
  private volatile long version = -1;
  private volatile String checkpointId;
  private volatile Stats stats = new Stats(0, 0, 0, 0, 0, 0, 0, false);
  private long spills;

  public StateCache(MemoryPool pool) {
    this.pool = pool;
    account = new MemoryAccount(pool);
    committed = new CommittedCache(account);
    pool.register(this);
  }

  @Override
  public boolean evictIfIdle(long wanted) {
    if (!inUse.tryAcquire()) {
      return false;
    }
    try {
      long before = account.bytes();
      while (before - account.bytes() < wanted && committed.eviction.evictSlab()) {
        continue;
      }
      publish();
      return account.bytes() < before;
    } finally {
      release();
    }
  }

  @Override
  public long accountedBytes() {
    return account.bytes();
  }

  @Override
  public MemoryPool.Use use() {
    return account.use();
  }

  /**
   * Makes a family known. Idempotent; inside or outside a session. {@code isOrdered}: it has range
   * scans; {@code isMulti}: it has appends.
   */
  public void defineFamily(int id, boolean isOrdered, boolean isMulti) {
    exclusively(() -> committed.families.define(id, isOrdered, isMulti));
  }

  /** Forgets all other families: the loaded version has these. */
  public void keepFamilies(Set<Integer> ids) {
    exclusively(() -> committed.families.keep(ids));
  }

  /** Version of the committed entries; -1 before the first {@link #reset}. */
  public long version() {
    return version;
  }

  /** Checkpoint id of that version; may be null. */
  public String checkpointId() {
    return checkpointId;
  }

  /**
   * Drops all entries and sets their version. {@code isEmpty}: that version has no key, so every
   * family is complete.
   */
  public void reset(long newVersion, String newCheckpointId, boolean isEmpty) {
    if (session != null) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the state cache is reset while a session is open");
    }
    exclusively(
        () -> {
          committed.families.reset(newVersion, newCheckpointId, isEmpty);
          committed.refills.policy.noteReset();
          publish();
        });
  }

  /** Changes the entries; the caller of an open session holds the lock already. */
  private void exclusively(Runnable change) {
    if (session != null) {
      change.run();
      return;
    }
    inUse.acquireUninterruptibly();
    try {
      if (isClosed) {
        throw new IllegalStateException("[CAIRN_INTERNAL] the state cache of this store is closed");
      }
      change.run();
    } finally {
      release();
    }
  }

  /**
   * Begins a session on the cached version. It ends with {@link CacheSession#commit} or {@link
   * CacheSession#abort}.
   */
  public CacheSession begin(EngineSource source) {
    if (session != null) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the state cache has an open session already");
    }
    inUse.acquireUninterruptibly();
    if (isClosed || session != null || committed.families.version() < 0) {
      release();
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the state cache is closed, in use, or was never reset to a version");
    }
    try {
      committed.begin(source);
      CacheSession begun = new CacheSession(committed, source, this::end);
      // Last: what may fail is done.
      pool.countSession(1);
      session = begun;
      return begun;
    } catch (Throwable failure) {
      committed.end();
      release();
      throw failure;
    }
  }

  private void end() {
    CacheSession ended = session;
    try {
      long rows = ended.reads() + ended.puts() + ended.removes();
      spills += ended.spillCount();
      pool.countSession(-1);
      committed.end();
      publish();
      if (rows > 0) {
        committed.refills.policy.noteSession();
        pool.noteUse(account.use(), rows);
      }
    } finally {
      session = null;
      release();
    }
  }

  private void publish() {
    account.releaseReserved();
    version = committed.families.version();
    checkpointId = committed.families.checkpointId();
    boolean isComplete = version >= 0 && committed.families.areComplete();
    if (version < 0) {
      committed.refills.policy.noteReset();
    }
    committed.refills.policy.noteSize(committed.families.bytesPerRow());
    committed.refills.policy.note(
        isComplete, committed.refills.count(), committed.families.lostRefills());
    stats = count(spills, isComplete);
  }

  private Stats count(long spillsSoFar, boolean isComplete) {
    return new Stats(
        committed.families.presentCount(),
        account.bytes(),
        committed.hits(),
        committed.keys.misses(),
        committed.eviction.evictedSlabs(),
        spillsSoFar,
        committed.refills.count(),
        isComplete);
  }

  /** Counters at the last session or eviction; the bytes are the present ones. */
  public Stats stats() {
    Stats s = stats;
    return new Stats(
        s.entries,
        account.bytes(),
        s.hits,
        s.misses,
        s.evictions,
        s.spills,
        s.refills,
        s.isComplete);
  }

  /**
   * Publishes the counters of the open session, which reads no more, and returns them. The entries
   * are still those before the fold. REQUIRES: the caller uses the session, and no fold runs.
   */
  public Stats publishSession() {
    long newSpills = session.spillCount();
    Stats now = count(spills + newSpills, newSpills == 0 && committed.families.areComplete());
    stats = now;
    return now;
  }

  /**
   * Sets the size of the version, on which a refill depends.
   *
   * @param rows rows of the version, or an estimate
   * @param bytesPerRow used if too few rows are cached to know
   */
  public void expectRows(long rows, long bytesPerRow) {
    committed.refills.policy.expect(rows, bytesPerRow);
  }

  /**
   * Whether the cache lacks rows and may be refilled: all rows probably fit, and no refill was lost
   * recently.
   */
  public boolean isRefillDue() {
    return committed.refills.policy.isDue();
  }

  /** Frees everything, now or when the open session ends. Idempotent. */
  @Override
  public void close() {
    isClosed = true;
    pool.unregister(this);
    freeIfClosed();
  }

  private void release() {
    inUse.release();
    freeIfClosed();
  }

  private void freeIfClosed() {
    if (isClosed && inUse.tryAcquire()) {
      try {
        committed.families.reset(-1, null, false);
        publish();
      } finally {
        inUse.release();
      }
    }
  }
}
