package io.cairn.spark.cache;

/** Decides whether the sessions of a store send writes before their commit. */
final class EarlyPolicy {
  /**
   * A row whose key is written again takes space in the changelog, and does not count. A session
   * with more than this part of such rows among those that it sent sends no more frames early, and
   * its successors none.
   */
  private static final int REWRITTEN_DIVISOR = 8;

  /** Sessions of a store that send nothing early after one whose keys were written again. */
  private static final int PAUSE_SESSIONS = 16;

  /**
   * Number of new keys after which their writes are sent: fewer are encoded in little time at the
   * commit.
   */
  int minWrites = 8_192;

  /** The next sessions that send nothing early. */
  int pausedSessions;

  /** Counts a session that begins to write; false: it is one of those that send nothing early. */
  boolean admitSession() {
    if (pausedSessions > 0) {
      pausedSessions--;
      return false;
    }
    return true;
  }

  /**
   * Whether a session that has sent so many rows may send more, if so many of them were written
   * again. If not, the next ones pause.
   */
  boolean mayContinue(long sentCount, long rewrittenCount) {
    if (rewrittenCount * REWRITTEN_DIVISOR <= sentCount) {
      return true;
    }
    pausedSessions = PAUSE_SESSIONS;
    return false;
  }
}
