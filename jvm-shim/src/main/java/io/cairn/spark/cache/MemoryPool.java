package io.cairn.spark.cache;

import io.cairn.spark.protocol.WriteBlock;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The bound on the bytes of all store caches of a process: slabs, tables and orders. Thread-safe.
 *
 * <p>Accounted bytes stay within the limit, except that every open session may hold, when nothing
 * else can go, {@link #guaranteedBytes} of writes (else it would send each few rows by themselves),
 * or one entry that is larger. Not accounted: a few shared write blocks, and the page of each open
 * scan (about 1 MiB at most).
 */
public final class MemoryPool {
  private static final int MAX_POOLED_BLOCKS = 4;
  private static final long LEAST_EVICTION_BYTES = 1 << 20;
  private static final long MAX_GUARANTEED_BYTES = 1 << 18;
  private static final long GUARANTEED_PART = 64;

  private final long limitBytes;
  private final AtomicLong accounted = new AtomicLong();
  private final AtomicLong peak = new AtomicLong();
  private final Set<StateCache> stores = new HashSet<>();
  private final ArrayDeque<WriteBlock> blocks = new ArrayDeque<>();

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

  /** Most bytes ever accounted. */
  public long peakBytes() {
    return peak.get();
  }

  boolean tryReserve(long bytes) {
    while (true) {
      long before = accounted.get();
      if (before + bytes > limitBytes) {
        return false;
      }
      if (accounted.compareAndSet(before, before + bytes)) {
        raisePeak(before + bytes);
        return true;
      }
    }
  }

  /** Takes bytes beyond the limit: for what a session must be able to hold. */
  void reserveAnyway(long bytes) {
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

  void register(StateCache store) {
    synchronized (stores) {
      stores.add(store);
    }
  }

  void unregister(StateCache store) {
    synchronized (stores) {
      stores.remove(store);
    }
  }

  /** What the writes of an open session may take in any case. */
  long guaranteedBytes() {
    return Math.min(MAX_GUARANTEED_BYTES, limitBytes / GUARANTEED_PART);
  }

  /** What each store would hold if all held the same. */
  long fairShareBytes() {
    synchronized (stores) {
      return limitBytes / Math.max(1, stores.size());
    }
  }

  /**
   * Frees bytes in stores that nobody uses now and that hold more than {@code aboveBytes}, largest
   * first. False: nothing could be freed.
   */
  boolean evictIdle(StateCache asking, long bytes, long aboveBytes) {
    List<StateCache> candidates;
    synchronized (stores) {
      candidates = new ArrayList<>(stores);
    }
    candidates.remove(asking);
    while (true) {
      StateCache largest = null;
      for (StateCache store : candidates) {
        if (store.accountedBytes() > aboveBytes
            && (largest == null || store.accountedBytes() > largest.accountedBytes())) {
          largest = store;
        }
      }
      if (largest == null) {
        return false;
      }
      if (largest.evictIfIdle(Math.max(bytes, LEAST_EVICTION_BYTES))) {
        return true;
      }
      candidates.remove(largest);
    }
  }

  WriteBlock borrowBlock() {
    synchronized (blocks) {
      WriteBlock block = blocks.poll();
      return block == null ? new WriteBlock() : block;
    }
  }

  void returnBlock(WriteBlock block) {
    block.clear();
    synchronized (blocks) {
      if (blocks.size() < MAX_POOLED_BLOCKS) {
        blocks.push(block);
      }
    }
  }
}
