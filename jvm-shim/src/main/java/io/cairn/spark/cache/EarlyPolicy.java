package io.cairn.spark.cache;

/** Decides whether the sessions of a store send writes before their commit. */
final class EarlyPolicy {
  /**
   * A frame is encoded in vain if one of its keys is written again. A session with more such keys
   * sends no more frames early, and its successors none.
   */
  private static final int MAX_REWRITTEN = 16;

  /** Sessions of a store that send nothing early after one whose keys were written again. */
  private static final int PAUSE_SESSIONS = 16;

  /**
   * Number of new keys after which their writes are sent: fewer are encoded in little time at the
   * commit.
   */
  int minWrites = 16_384;

  /** The next sessions that send nothing early. */
  int pausedSessions;

  /** Whether a session that begins may send writes early. */
  boolean begin() {
    if (pausedSessions > 0) {
      pausedSessions--;
      return false;
    }
    return true;
  }

  /** Whether a session with so many rewritten keys may send more. If not, the next ones pause. */
  boolean mayContinue(int rewrittenCount) {
    if (rewrittenCount <= MAX_REWRITTEN) {
      return true;
    }
    pausedSessions = PAUSE_SESSIONS;
    return false;
  }
}
