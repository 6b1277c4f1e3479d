package io.cairn.spark.cache.memory;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The bound on the bytes of all state caches of a process: slabs, tables and orders. Thread-safe.
 *
 * <p>Accounted bytes stay within the limit, with one exception: if nothing else can be evicted,
 * each open session may use {@link #guaranteedBytes} for writes (otherwise it would send a few rows
 * at a time), or one entry that is larger. Not accounted: a few shared write blocks, and the page
 * of each open scan (at most about 1 MiB).
 */
public final class MemoryPool {
  private static final long MIN_EVICTION_BYTES = 1 << 20;
  private static final long MAX_GUARANTEED_BYTES = 1 << 18;
  private static final long GUARANTEED_PART = 64;

  private final long limitBytes;
  private final AtomicLong accounted = new AtomicLong();
  private final AtomicLong peak = new AtomicLong();
  private final Set<Member> members = new HashSet<>();

  /** A store that shares the pool. */
  public interface Member {
    long accountedBytes();

    /** Frees about this number of bytes. False: the store is in use, or has nothing to free. */
    boolean evictIfIdle(long bytes);
  }

  public MemoryPool(long limitBytes) {
    if (limitBytes <= 0) {
      throw new IllegalArgumentException(
          "[CAIRN_CONFIG] the state cache's memory must be more than 0 bytes, not " + limitBytes);
    }
    this.limitBytes = limitBytes;
  }

  public long limitBytes() {
    return limitBytes;
  }

  public long accountedBytes() {
    return accounted.get();
  }

  /** Highest number of bytes ever accounted. */
  public long peakBytes() {
    return peak.get();
  }

  boolean tryReserve(long bytes) {
    while (true) {
      long before = accounted.get();
      if (bytes > limitBytes - before) {
        return false;
      }
      if (accounted.compareAndSet(before, before + bytes)) {
        raisePeak(before + bytes);
        return true;
      }
    }
  }

  void reserveBeyondLimit(long bytes) {
    raisePeak(accounted.addAndGet(bytes));
  }

  void release(long bytes) {
    accounted.addAndGet(-bytes);
  }

  private void raisePeak(long now) {
    if (now > peak.get()) {
      peak.accumulateAndGet(now, Math::max);
    }
  }

  public void register(Member member) {
    synchronized (members) {
      members.add(member);
    }
  }

  public void unregister(Member member) {
    synchronized (members) {
      members.remove(member);
    }
  }

  /** Bytes of writes that an open session may always use. */
  public long guaranteedBytes() {
    return Math.min(MAX_GUARANTEED_BYTES, limitBytes / GUARANTEED_PART);
  }

  /** The limit divided by the number of stores. */
  public long fairShareBytes() {
    synchronized (members) {
      return limitBytes / Math.max(1, members.size());
    }
  }

  /**
   * Frees bytes of the largest store that is not in use and has more than {@code aboveBytes}.
   * False: nothing could be freed.
   */
  public boolean evictIdle(long bytes, long aboveBytes) {
    List<Member> candidates;
    synchronized (members) {
      candidates = new ArrayList<>(members);
    }
    while (true) {
      Member largest = null;
      for (Member member : candidates) {
        if (member.accountedBytes() > aboveBytes
            && (largest == null || member.accountedBytes() > largest.accountedBytes())) {
          largest = member;
        }
      }
      if (largest == null) {
        return false;
      }
      if (largest.evictIfIdle(Math.max(bytes, MIN_EVICTION_BYTES))) {
        return true;
      }
      candidates.remove(largest);
    }
  }
}
