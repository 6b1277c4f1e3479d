package io.cairn.spark.protocol;

/**
 * The engine as the cache uses it: bulk reads of one instance at its loaded version, and writes.
 *
 * <p>One source serves one session. Not thread-safe: one caller at a time, though not always on the
 * same thread.
 */
public interface EngineSource {

  /**
   * Reads keys in bulk. The reply has one row per key, in the order of the keys; its own keys are
   * empty. If values are large, the reply has fewer rows, at least one, and says that more follow:
   * the caller then requests the rest. The page is valid until the next request.
   *
   * @param requireApplied the engine applies deltas up to this version before it answers; 0 does
   *     not wait
   */
  RowPage get(int family, byte[][] keys, int count, long requireApplied);

  /**
   * Reads one page of keys in ascending unsigned order: the session's spill merged over committed
   * rows. The page stays valid.
   */
  RowPage scan(ScanRequest request, long requireApplied);

  /** Sends the request of {@link #scan} and returns without its reply; see {@link #startGet}. */
  PendingRows startScan(ScanRequest request, long requireApplied);

  /**
   * Sends the request of {@link #get} and returns without its reply. The caller does its own work
   * meanwhile, or other calls of the source.
   */
  PendingRows startGet(int family, byte[][] keys, int count, long requireApplied);

  /**
   * Requests the rows of ranges of one family, which ascend and do not overlap, and returns without
   * the reply. Its keys ascend. If it says that more rows follow, the range of its last row may be
   * incomplete, and those after it are not answered.
   *
   * @param from inclusive; {@code to} is exclusive, null: the end of the family
   */
  PendingRows startRanges(int family, byte[][] from, byte[][] to, int count, long requireApplied);

  /**
   * Sends writes of the session. The rows are read before the call returns.
   *
   * @param isSpill the cache drops these writes after the call, so the source keeps a copy if it
   *     can; otherwise the call is part of a commit, which can send them again
   */
  void write(WriteBlock block, boolean isSpill);

  /** The error for a row (key and value) over {@link WriteBlock#MAX_ROW_BYTES}. */
  RuntimeException rowTooLarge(long bytes);

  /**
   * Version up to which the engine's database had this instance's deltas at its last answer. It is
   * never above the version that was loaded for the session.
   */
  long appliedThrough();
}
