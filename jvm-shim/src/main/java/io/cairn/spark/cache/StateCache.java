package io.cairn.spark.cache;

import io.cairn.spark.protocol.EngineSource;
import java.util.concurrent.Semaphore;

/**
 * The cache of one provider instance: the committed entries it holds (the base) and who is using
 * them.
 *
 * <p>One session or load at a time. Stamp, statistics and {@link #close} may be used from any
 * thread.
 */
public final class StateCache implements AutoCloseable {
  private final MemoryPool budget;
  private final Semaphore owner = new Semaphore(1);
  private final CommittedCache base = new CommittedCache(new CommittedAccount());

  private volatile CacheSession session;
  private volatile boolean closed;
  private volatile long stampVersion = -1;
  private volatile String stampId;
  private volatile long bytes;
  private volatile CacheStats stats = new CacheStats(0, 0, 0, 0, 0, 0, 0, 0);

  long hits;
  long misses;
  long spills;

  /** Only what is free may be taken now. */
  private boolean freeOnly;

  public StateCache(MemoryPool budget) {
    this.budget = budget;
    budget.register(this);
  }

  /** What base and overlay get their bytes by; evicts for them. */
  private final class CommittedAccount implements MemoryAccount {
    @Override
    public boolean take(long wanted) {
      return StateCache.this.take(wanted);
    }

    @Override
    public void give(long back) {
      StateCache.this.give(back);
    }
  }

  /**
   * Takes bytes: free ones, else by evicting. A store below its fair share takes from idle ones
   * that are above it; then its own base gives, then every idle store.
   */
  boolean take(long wanted) {
    if (takeFree(wanted)) {
      return true;
    }
    if (freeOnly || base.eviction().isBusy() || wanted > budget.limitBytes()) {
      return false;
    }
    long fair = budget.fairShareBytes();
    while (bytes < fair && budget.evictIdle(this, wanted, fair)) {
      if (takeFree(wanted)) {
        return true;
      }
    }
    while (base.eviction().evictOne()) {
      if (takeFree(wanted)) {
        return true;
      }
    }
    while (budget.evictIdle(this, wanted, 0)) {
      if (takeFree(wanted)) {
        return true;
      }
    }
    return takeFree(wanted);
  }

  boolean takeFree(long wanted) {
    if (!budget.tryReserve(wanted)) {
      return false;
    }
    account(wanted);
    return true;
  }

  void takeAnyway(long wanted) {
    budget.reserveAnyway(wanted);
    account(wanted);
  }

  void give(long back) {
    account(-back);
    budget.release(back);
  }

  /** Only the owner changes the count. */
  private void account(long change) {
    long now = bytes + change;
    bytes = now;
  }

  /** For another store that needs room. False: this one is in use, or has nothing. */
  boolean evictIfIdle(long wanted) {
    if (!owner.tryAcquire()) {
      return false;
    }
    try {
      long before = bytes;
      while (before - bytes < wanted && base.eviction().evictOne()) {
        continue;
      }
      publish();
      return bytes < before;
    } finally {
      release();
    }
  }

  /**
   * Makes a family known. Idempotent; inside or outside a session. {@code ordered}: ranges will be
   * asked of it; {@code multi}: appends.
   */
  public void defineFamily(int id, boolean ordered, boolean multi) {
    asOwner(() -> base.define(id, ordered, multi));
  }

  /**
   * Forgets a family that the loaded version does not have. Inside a session use {@link
   * CacheSession#dropFamily}.
   */
  public void dropFamily(int id) {
    asOwner(() -> base.remove(id));
  }

  /** Version that the base stands at, or -1 before the first {@link #reset}. */
  public long stampVersion() {
    return stampVersion;
  }

  /** Checkpoint id that the base stands at; may be null. */
  public String stampId() {
    return stampId;
  }

  /**
   * Empties the base and stamps it. {@code empty}: that version holds no key at all, so every
   * family is complete.
   */
  public void reset(long version, String id, boolean empty) {
    if (session != null) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the state cache is reset while a session is open");
    }
    asOwner(
        () -> {
          base.reset(version, id, empty);
          publish();
        });
  }

  /** Does what only the base's owner may: an open session's caller owns it already. */
  private void asOwner(Runnable work) {
    if (session != null) {
      work.run();
      return;
    }
    owner.acquireUninterruptibly();
    try {
      if (closed) {
        throw new IllegalStateException("[CAIRN_INTERNAL] the state cache of this store is closed");
      }
      work.run();
    } finally {
      release();
    }
  }

  /**
   * Begins a session on the stamped version. It ends with {@link CacheSession#commit} or {@link
   * CacheSession#abort}.
   */
  public CacheSession begin(EngineSource source) {
    if (session != null) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the state cache has an open session already");
    }
    owner.acquireUninterruptibly();
    if (closed || session != null || base.version < 0) {
      owner.release();
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the state cache is closed, in use, or was never stamped");
    }
    base.eviction().applied = source.appliedThrough();
    CacheSession begun = new CacheSession(this, base, source);
    session = begun;
    return begun;
  }

  /** The open session is over. */
  void end() {
    publish();
    session = null;
    release();
  }

  private void publish() {
    stampVersion = base.version;
    stampId = base.id;
    stats = count();
  }

  /**
   * Starts to fill an emptied base with the committed state: between {@link #reset} and a session,
   * or as a session's first act. Every family of that version must be defined before.
   */
  public BulkLoad startLoad() {
    CacheSession open = session;
    if (open != null && !open.isClean()) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] a bulk load starts after the session's first write");
    }
    if (open == null) {
      owner.acquireUninterruptibly();
    }
    freeOnly = true;
    // What a load clears, or leaves out when it fails, is with the engine alone.
    base.require(base.version);
    return new BulkLoad(this, base, open == null);
  }

  void endLoad(boolean owned) {
    freeOnly = false;
    publish();
    if (owned) {
      release();
    }
  }

  /** Whether the base holds all keys of the family. For the session's caller. */
  public boolean isComplete(int family) {
    return base.isDefined(family) && base.family(family).complete;
  }

  /**
   * Present keys of the family in the base; of a complete family all that are committed. For the
   * session's caller.
   */
  public long entries(int family) {
    return base.isDefined(family) ? base.family(family).present() : 0;
  }

  /** As of the last load, session or eviction; the bytes as of now. */
  public CacheStats stats() {
    CacheStats s = stats;
    return new CacheStats(
        s.entries(),
        bytes,
        s.hits(),
        s.misses(),
        s.evictions(),
        s.spills(),
        s.families(),
        s.completeFamilies());
  }

  private CacheStats count() {
    long entries = 0;
    int families = 0;
    int complete = 0;
    for (int i = 0; i < base.end(); i++) {
      if (base.isDefined(i)) {
        families++;
        entries += base.family(i).present();
        complete += base.family(i).complete ? 1 : 0;
      }
    }
    return new CacheStats(
        entries, bytes, hits, misses, base.eviction().evictedSlabs, spills, families, complete);
  }

  long accountedBytes() {
    return bytes;
  }

  MemoryPool budget() {
    return budget;
  }

  /** Frees everything; at the end of the session if one is open. Idempotent. */
  @Override
  public void close() {
    closed = true;
    budget.unregister(this);
    freeClosed();
  }

  private void release() {
    owner.release();
    if (closed) {
      freeClosed();
    }
  }

  private void freeClosed() {
    if (owner.tryAcquire()) {
      try {
        base.clear();
        publish();
      } finally {
        owner.release();
      }
    }
  }
}
