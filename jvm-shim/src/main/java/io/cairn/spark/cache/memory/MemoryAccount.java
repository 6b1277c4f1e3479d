package io.cairn.spark.cache.memory;

/**
 * One store's part of the pool: bytes in use by its maps, and bytes reserved for the next
 * insertion.
 *
 * <p>One caller at a time; all but reservations may be called from any thread.
 */
public final class MemoryAccount {
  private final MemoryPool pool;
  private final MemoryPool.Use use = new MemoryPool.Use();

  /** In use or reserved. */
  private volatile long bytes;

  private long reserved;

  public MemoryAccount(MemoryPool pool) {
    this.pool = pool;
  }

  public MemoryPool pool() {
    return pool;
  }

  public long bytes() {
    return bytes;
  }

  public MemoryPool.Use use() {
    return use;
  }

  /** Whether the store has less than its fair share. */
  public boolean isBelowShare() {
    return bytesAboveShare() < 0;
  }

  /** What the store has more than its fair share; negative: less. */
  public long bytesAboveShare() {
    return bytes - pool.fairShareBytes(use);
  }

  /** {@link MemoryPool#obtainableBytes} of this store. */
  public long obtainableBytes() {
    return pool.obtainableBytes(use, bytes);
  }

  /** Reserves free bytes until {@code wanted} are reserved. False: there are not enough. */
  public boolean tryReserve(long wanted) {
    return wanted <= reserved || tryReserveMore(wanted - reserved);
  }

  private boolean tryReserveMore(long more) {
    if (!pool.tryReserve(more)) {
      return false;
    }
    add(more);
    return true;
  }

  /** Reserves bytes until {@code wanted} are reserved, even beyond the limit of the pool. */
  public void reserveBeyondLimit(long wanted) {
    long more = Math.max(0, wanted - reserved);
    pool.reserveBeyondLimit(more);
    add(more);
  }

  private void add(long more) {
    long now = bytes + more;
    bytes = now;
    reserved += more;
  }

  /** Returns unused reserved bytes to the pool. */
  public void releaseReserved() {
    long unused = reserved;
    reserved = 0;
    release(unused);
  }

  /** A map allocates reserved bytes. */
  void use(long used) {
    if (used > reserved) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the cache needs " + used + " bytes, but has reserved " + reserved);
    }
    reserved -= used;
  }

  /** A map frees bytes that it used. */
  void release(long freed) {
    long now = bytes - freed;
    bytes = now;
    pool.release(freed);
  }
}
