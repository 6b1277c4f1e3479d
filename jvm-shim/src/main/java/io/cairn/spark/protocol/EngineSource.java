package io.cairn.spark.protocol;

/**
 * What the cache asks of the engine: bulk reads of one instance at its loaded version, and a place
 * for writes.
 *
 * <p>One source serves one session. Implemented over the data channel; tests have one over a map.
 * Not thread-safe: one caller at a time, though not always the same thread.
 */
public interface EngineSource {

  /**
   * Reads keys in bulk. The reply has one row a key, in the order asked; its key bytes are not
   * filled. Of large values it has fewer rows, at least one, and says that more follow: ask again
   * for the rest.
   *
   * @param requireApplied deltas up to this version are applied before the answer; 0 asks for no
   *     wait
   */
  RowPage get(int family, byte[][] keys, int count, long requireApplied);

  /**
   * Reads one page of keys in ascending unsigned order, the session's spill merged over committed
   * rows.
   *
   * @param from first key, or null for the family's start
   * @param inclusive whether {@code from} itself belongs to the page
   * @param to exclusive end, or null
   */
  RowPage scan(
      int family,
      byte[] from,
      boolean inclusive,
      byte[] to,
      int limitRows,
      int limitBytes,
      long requireApplied);

  /**
   * Hands over writes of the session: a spill before commit, or the last ones at commit. The rows
   * are read before the call returns.
   *
   * @param isSpill the cache lets go of them; else it can write all of the session's again
   */
  void write(WriteBlock block, boolean isSpill);

  /** The error for a key that, with its value, is over {@link WriteBlock#MAX_ROW_BYTES}. */
  RuntimeException rowTooLarge(long bytes);

  /**
   * Version up to which the engine's database held this instance's deltas when it last answered.
   * From a session's begin on it speaks of the version loaded: after a load of an older version
   * never more than that one.
   */
  long appliedThrough();
}
