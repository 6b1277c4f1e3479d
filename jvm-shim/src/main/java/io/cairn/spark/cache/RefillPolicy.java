package io.cairn.spark.cache;

import io.cairn.spark.cache.memory.MemoryAccount;

/**
 * Decides when the cache of a store is refilled.
 *
 * <p>Counts in rows and in sessions, not in time. A store that is not complete pays for each
 * request to the engine. A session begins a refill when the requests have cost a part of what is
 * left to read: so a session that reads little does not wait for the whole state, and one that
 * reads much pays little more than the refill. A few rows are read at once.
 *
 * <p>A refill that is lost soon afterwards, or half-way, was in vain: the store then waits for some
 * sessions, each time twice as many.
 *
 * <p>Threads: as the user of the cache.
 */
final class RefillPolicy {
  /** A request costs as much as the refill of this number of rows. */
  static final int ROWS_PER_REQUEST = 16;

  /** A session refills when requests have cost one row per so many that it must read. */
  static final int PAID_DIVISOR = 8;

  /** So many rows are read at once, at the start of a session: some tenths of a second. */
  static final long FEW_ROWS = 1 << 17;

  /** A refill leaves one byte in so many of the pool to the writes of the next batches. */
  private static final int FREE_DIVISOR = 8;

  /** A refill that was lost within this number of sessions was in vain. */
  private static final int MIN_SESSIONS = 4;

  private static final int MAX_WAIT_SESSIONS = 256;

  private final MemoryAccount account;

  /** {@link #FEW_ROWS}; tests set another number. */
  long fewRows = FEW_ROWS;

  private long rows;
  private long assumedBytesPerRow;
  private boolean isComplete;
  private int waitSessions;
  private long bytesPerRow;

  /** What requests have cost since the store was complete, in rows of a refill. */
  private long paidRows;

  /** Rows that an unfinished refill has read. */
  private long refilledRows;

  /** The cache was never complete since the version was loaded. */
  private boolean isFirst = true;

  private boolean wasRefilled;
  private long refills;
  private long lostRefills;
  private long sessionsSinceRefill;
  private int lastWait;

  RefillPolicy(MemoryAccount account) {
    this.account = account;
  }

  /**
   * Sets the size of the version.
   *
   * @param newRows rows of the version, or an estimate
   * @param newAssumedBytesPerRow used if too few rows are cached to know
   */
  void expect(long newRows, long newAssumedBytesPerRow) {
    rows = newRows;
    assumedBytesPerRow = newAssumedBytesPerRow;
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
    if (isNowComplete || lost > lostRefills) {
      refilledRows = 0;
    }
    isComplete = isNowComplete;
    refills = finished;
    lostRefills = lost;
    if (isComplete) {
      isFirst = false;
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
    isFirst = true;
    wasRefilled = false;
    paidRows = 0;
    refilledRows = 0;
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
  void notePaid(long costRows) {
    paidRows += costRows;
  }

  /** Notes the rows that a refill has read. */
  void noteRefilled(long readRows) {
    paidRows = Math.max(0, paidRows - readRows);
    refilledRows += readRows;
  }

  /** Whether the cache was never complete since the version was loaded. */
  boolean isFirst() {
    return isFirst;
  }

  /** Whether a session should refill now: few rows are left, or much was paid for requests. */
  boolean isWorthwhile() {
    return rows - refilledRows <= fewRows + PAID_DIVISOR * paidRows;
  }

  /** Whether the store may be refilled now: all rows fit, and no refill was lost recently. */
  boolean isDue() {
    long known = bytesPerRow;
    long wanted = rows * (known > 0 ? known : assumedBytesPerRow) - account.bytes();
    return !isComplete
        && waitSessions == 0
        && wanted <= account.obtainableBytes() - account.pool().limitBytes() / FREE_DIVISOR;
  }
}
