package io.cairn.spark.cache;

import io.cairn.spark.cache.memory.MemoryAccount;

/**
 * Decides when the cache of a store is refilled, and how much of it at the start of a session.
 *
 * <p>Counts in rows and in sessions, not in time. A store that is not complete pays for each
 * request to the engine. The start of a session may read as many rows as were paid for before, and
 * a few more: so a refill costs no more than what it ends, and a small store is refilled at once.
 *
 * <p>A refill that is lost soon afterwards, or half-way, was in vain: the store then waits for some
 * sessions, each time twice as many.
 *
 * <p>Changed by the user of the cache; {@link #isDue} and {@link #gain} may be called from any
 * thread.
 */
final class RefillPolicy {
  /** A request costs as much as the refill of this number of rows. */
  static final int ROWS_PER_REQUEST = 16;

  /** Rows that the start of every session may read: some tenths of a second. */
  static final long START_ROWS = 1 << 17;

  /** A part of the pool that a refill leaves to the writes of the next batches. */
  private static final int FREE_PART = 8;

  /** A refill that was lost within this number of sessions was in vain. */
  private static final int MIN_SESSIONS = 4;

  private static final int MAX_WAIT_SESSIONS = 256;

  private final MemoryAccount account;
  private volatile boolean isComplete;
  private volatile int waitSessions;
  private volatile long paidRows;
  private volatile long bytesPerRow;
  private boolean wasRefilled;
  private long refills;
  private long lostRefills;
  private long sessionsSinceRefill;
  private int lastWait;

  RefillPolicy(MemoryAccount account) {
    this.account = account;
  }

  /**
   * Notes the present state of the cache. The numbers count since its creation.
   *
   * @param finished refills that made the store complete
   * @param lost refills that were lost half-way
   */
  void note(boolean isNowComplete, long finished, long lost) {
    if (finished > refills) {
      wasRefilled = true;
      sessionsSinceRefill = 0;
      isComplete = true;
    }
    boolean wasInVain =
        wasRefilled && isComplete && !isNowComplete && sessionsSinceRefill < MIN_SESSIONS;
    if (wasInVain || lost > lostRefills) {
      lastWait = Math.min(MAX_WAIT_SESSIONS, Math.max(MIN_SESSIONS, lastWait * 2));
      waitSessions = lastWait;
    }
    isComplete = isNowComplete;
    refills = finished;
    lostRefills = lost;
    if (isComplete) {
      paidRows = 0;
    }
  }

  /** Notes the average size of cached rows; 0: not known. */
  void noteSize(long newBytesPerRow) {
    bytesPerRow = newBytesPerRow > 0 ? newBytesPerRow : bytesPerRow;
  }

  /** Notes that all entries were dropped, because another version is loaded. */
  void noteReset() {
    isComplete = false;
    wasRefilled = false;
  }

  /** Notes the end of a session that read or wrote rows. */
  void noteSession() {
    sessionsSinceRefill++;
    waitSessions = Math.max(0, waitSessions - 1);
    if (isComplete && sessionsSinceRefill == MIN_SESSIONS) {
      lastWait = 0;
    }
  }

  /** Notes what requests to the engine have cost, in rows. */
  void notePaid(long rows) {
    paidRows += rows;
  }

  /** Notes the rows that a refill has read. */
  void noteRefilled(long rows) {
    paidRows = Math.max(0, paidRows - rows);
  }

  /**
   * Whether the store should be refilled now.
   *
   * @param rows of the version, or an estimate
   * @param assumedBytesPerRow used if too few rows are cached to know
   */
  boolean isDue(long rows, long assumedBytesPerRow) {
    long known = bytesPerRow;
    long wanted = rows * (known > 0 ? known : assumedBytesPerRow) - account.bytes();
    return !isComplete
        && waitSessions == 0
        && wanted <= account.obtainableBytes() - account.pool().limitBytes() / FREE_PART;
  }

  /** Rows that the start of a session may read. */
  long startRows() {
    return START_ROWS + paidRows;
  }

  /** What the store has paid since it was complete, in rows: the gain of a refill. */
  long gain() {
    return paidRows;
  }
}
