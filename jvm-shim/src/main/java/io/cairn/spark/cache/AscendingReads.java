package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;

/**
 * Reads a page of rows instead of one key, when the keys of a family are read in their order: a
 * page costs about as much as two single reads.
 *
 * <p>Spark's joins read so when they remove old rows: they scan the lengths of all lists, and get
 * each list's elements. Threads: as the session.
 */
final class AscendingReads {
  /** So many reads in ascending order come by chance about never. */
  private static final int MIN_READS = 16;

  /** A read below the one before it costs so many of the ascending ones: a list's last element. */
  private static final int DESCENT = 4;

  private static final int MAX_READS = 2 * MIN_READS;
  private static final int MAX_PAGE_BYTES = 1 << 19;

  private final CachedFamily family;
  private byte[] lastKey = new byte[64];
  private int lastLength = -1;
  private int ascending;
  private AheadLimit limit = new AheadLimit();

  /** The last page, unless it did not pay; null: there is none. */
  private Answer.Page page;

  AscendingReads(CachedFamily family) {
    this.family = family;
  }

  /**
   * Notes a key that is about to be requested.
   *
   * @return the request for a page that begins with it, and whose reply is for {@link #take}; null:
   *     the key is better read alone
   */
  ScanRequest request(ByteSpan key) {
    note(key);
    if (ascending < MIN_READS || page != null && page.partOf(key) >= 0) {
      return null; // a key of the page that is requested was spilled since
    }
    boolean isFirst = page == null;
    int rows = limit.next(isFirst ? 0 : page.page.count, isFirst ? 0 : page.readCount);
    page = null;
    return rows == 0
        ? null
        : new ScanRequest(family.id, key.toArray(), true, null, rows, MAX_PAGE_BYTES);
  }

  /** Takes the reply to a request; its rows answer reads from its first key on. */
  Answer take(ScanRequest request, RowPage reply) {
    page = new Answer.Page(family, request.from(), reply);
    return page;
  }

  /** Compares the key with the one before it. */
  private void note(ByteSpan key) {
    if (lastLength >= 0) {
      int order = Bytes.compare(lastKey, Bytes.ARRAY, lastLength, key.base, key.offset, key.length);
      ascending = order > 0 ? Math.max(0, ascending - DESCENT) : Math.min(MAX_READS, ascending + 1);
      if (ascending == 0) {
        page = null;
        limit = new AheadLimit();
      }
    }
    if (key.length > lastKey.length) {
      lastKey = new byte[2 * key.length];
    }
    Bytes.copy(key, lastKey, Bytes.ARRAY);
    lastLength = key.length;
  }
}
