package io.cairn.spark.cache.memory;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The bound on the bytes of all state caches of a process: slabs, tables and orders. Thread-safe.
 *
 * <p>Accounted bytes stay within the limit, with one exception: if nothing else can be evicted,
 * each open session may use {@link #guaranteedBytes} for writes (otherwise it would send a few rows
 * at a time), or one entry that is larger, beside spilled writes that its open scans see. Not
 * accounted: a few shared write blocks, and of each open session the pages of its scans and the
 * spilled rows that it has prefetched (each at most about 1 MiB).
 *
 * <p>The fair share of a store follows its use: the rows that its recent sessions read and wrote,
 * with those of all stores as the whole. Use is forgotten by the number of sessions, not by time,
 * so that stores which take turns keep their shares however long a turn is.
 */
public final class MemoryPool {
  private static final long MIN_EVICTION_BYTES = 1 << 20;
  private static final long MAX_GUARANTEED_BYTES = 1 << 18;
  private static final long GUARANTEED_DIVISOR = 64;
  private static final long WRITE_DIVISOR = 4;

  /** Counted for each session beside its rows, so that a store with few rows keeps a share. */
  private static final long ROWS_PER_SESSION = 1_000;

  private static final double UNKNOWN = -1;

  /** After this number of sessions per store, use counts half. */
  private static final int HALF_LIFE_SESSIONS = 4;

  private final long limitBytes;
  private final AtomicLong accounted = new AtomicLong();
  private final AtomicLong peak = new AtomicLong();
  private final AtomicInteger openSessions = new AtomicInteger();
  private final Set<Member> members = new HashSet<>();

  /** Ended sessions of all stores. INVARIANT: used under the lock of {@link #members}. */
  private long sessionCount;

  /** The recent rows of all members; -1: not known. INVARIANT: used under the lock of those. */
  private double totalUse = UNKNOWN;

  /** A store that shares the pool. */
  public interface Member {
    long accountedBytes();

    Use use();

    /** Frees about this number of bytes. False: the store is in use, or has nothing to free. */
    boolean evictIfIdle(long bytes);
  }

  /** What the recent sessions of a store have used. */
  public static final class Use {
    /** Rows, as of {@link #at}. INVARIANT: used under the lock of the members. */
    private double rows;

    /** The number of sessions of the pool at that time. */
    private long at;
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

  /** Bytes that a reservation gets without an eviction. */
  public long freeBytes() {
    return Math.max(0, limitBytes - accounted.get());
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

  /** Adds a store. Until its first session ends, it counts as a store of average use. */
  public void register(Member member) {
    synchronized (members) {
      Use use = member.use();
      use.rows = members.isEmpty() ? 0 : totalUse() / members.size();
      use.at = sessionCount;
      members.add(member);
      totalUse = UNKNOWN;
    }
  }

  public void unregister(Member member) {
    synchronized (members) {
      members.remove(member);
      totalUse = UNKNOWN;
    }
  }

  /** Notes that a session has begun, or ({@code change} -1) has ended. */
  public void countSession(int change) {
    openSessions.addAndGet(change);
  }

  /**
   * Bytes up to which the writes of an open session evict committed entries: a quarter of the pool,
   * but for all open sessions together half of it. Without that bound they would leave no memory
   * for what the other sessions read.
   */
  public long writeBytes() {
    return limitBytes / Math.max(WRITE_DIVISOR, 2L * openSessions.get());
  }

  /** Bytes of writes that an open session may always use. */
  public long guaranteedBytes() {
    return Math.min(MAX_GUARANTEED_BYTES, limitBytes / GUARANTEED_DIVISOR);
  }

  /** Notes the end of a session that read and wrote this number of rows. */
  public void noteUse(Use use, long rows) {
    synchronized (members) {
      sessionCount++;
      use.rows = recentRows(use) + ROWS_PER_SESSION + rows;
      use.at = sessionCount;
      totalUse = UNKNOWN;
    }
  }

  private double recentRows(Use use) {
    double halvings =
        (double) (sessionCount - use.at) / (HALF_LIFE_SESSIONS * Math.max(1, members.size()));
    return use.rows * Math.pow(0.5, halvings);
  }

  /** Each reservation under pressure asks for it, and it is a sum over all stores. */
  private double totalUse() {
    if (totalUse == UNKNOWN) {
      totalUse = 0;
      for (Member member : members) {
        totalUse += recentRows(member.use());
      }
    }
    return totalUse;
  }

  /** A store's part of the limit, by its recent use; before any use, all parts are equal. */
  public long fairShareBytes(Use use) {
    synchronized (members) {
      return fairShareBytes(use, totalUse());
    }
  }

  private long fairShareBytes(Use use, double totalUse) {
    double part = totalUse == 0 ? 1.0 / Math.max(1, members.size()) : recentRows(use) / totalUse;
    return (long) (limitBytes * part);
  }

  /**
   * Bytes that a store can get beside those that it holds: free ones; below its fair share, also
   * those of other stores above theirs.
   */
  public long obtainableBytes(Use use, long held) {
    synchronized (members) {
      double totalUse = totalUse();
      long free = limitBytes - accounted.get();
      long excess = 0;
      for (Member member : members) {
        if (member.use() != use) {
          long share = fairShareBytes(member.use(), totalUse);
          excess += Math.max(0, member.accountedBytes() - share);
        }
      }
      long belowShare = fairShareBytes(use, totalUse) - held;
      return Math.max(free, Math.min(belowShare, free + excess));
    }
  }

  private record Candidate(Member member, long bytesAboveShare) {}

  /**
   * Frees bytes of a store that is not in use: of the one that is most above its fair share. {@code
   * onlyAboveShare}: of no store below its share. False: nothing could be freed.
   */
  public boolean evictIdle(long bytes, boolean onlyAboveShare) {
    List<Candidate> candidates = new ArrayList<>();
    synchronized (members) {
      double totalUse = totalUse();
      for (Member member : members) {
        long held = member.accountedBytes();
        long above = held - fairShareBytes(member.use(), totalUse);
        if (held > 0 && (above > 0 || !onlyAboveShare)) {
          candidates.add(new Candidate(member, above));
        }
      }
    }
    candidates.sort(Comparator.comparingLong(Candidate::bytesAboveShare).reversed());
    for (Candidate candidate : candidates) {
      long most =
          onlyAboveShare
              ? Math.min(MIN_EVICTION_BYTES, candidate.bytesAboveShare)
              : MIN_EVICTION_BYTES;
      if (candidate.member.evictIfIdle(Math.max(bytes, most))) {
        return true;
      }
    }
    return false;
  }
}
