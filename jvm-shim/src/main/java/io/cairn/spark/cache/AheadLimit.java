package io.cairn.spark.cache;

/**
 * How many rows are requested before they are read: twice as many as the time before, as long as
 * enough of them are read. If not, none for some reads, and for twice as many after the next vain
 * try.
 */
final class AheadLimit {
  private static final int FIRST_ROWS = 64;
  private static final int MAX_ROWS = 4096;

  /** A request pays only if one row in so many is read: a row of many costs little. */
  private static final int MIN_READ_DIVISOR = 16;

  private static final int MIN_PAUSE = 32;
  private static final int MAX_PAUSE = 1024;

  private int rows = FIRST_ROWS;
  private int pause;
  private int nextPause = MIN_PAUSE;

  /**
   * Returns the number of rows to request for this read and those after it; 0: none.
   *
   * @param requested rows that were requested ahead, of which {@code read} were read
   */
  int next(long requested, long read) {
    if (pause > 0) {
      pause--;
      return 0;
    }
    if (read * MIN_READ_DIVISOR < requested) {
      pause = nextPause;
      nextPause = Math.min(MAX_PAUSE, 2 * nextPause);
      rows = FIRST_ROWS;
      return 0;
    }
    if (requested > 0) {
      nextPause = MIN_PAUSE;
    }
    int now = rows;
    rows = Math.min(MAX_ROWS, 2 * rows);
    return now;
  }
}
