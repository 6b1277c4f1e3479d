package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.RowPage;
import java.lang.ref.WeakReference;

/**
 * Requests the keys of coming reads in bulk from the rows of an open scan, if those are an index by
 * time of the family that is read.
 *
 * <p>Spark's outer joins of format 4 remove old rows so: they scan keys of a time and a row's key,
 * and get that row, whose key has the time at its end. Such reads are found by comparing their keys
 * with the rows that the scan has returned last. Only rows of the scan's present page are
 * requested.
 *
 * <p>Threads: as the session.
 */
final class IndexedReads {
  /** A time in a key, as Spark's encoders write it. */
  private static final int TIME_BYTES = 8;

  /**
   * The requests have half of the keys that a prefetch may have. The rows are removed as they are
   * read, and with all of them the removals evicted one of eight before its read.
   */
  private static final int MEMORY_DIVISOR = 2;

  private static final int FIRST_AHEAD_KEYS = 64;
  private static final int MAX_AHEAD_KEYS = 4096;

  /** Requests pay only if one key in so many is read. */
  private static final int MIN_USED_DIVISOR = 16;

  private final Prefetcher prefetcher;

  /** The scan that was opened last, unless its user has abandoned it; null: it has ended. */
  private WeakReference<Scan> followed;

  /** Null: no read has followed the scan. */
  private CachedFamily family;

  /** The page of the scan whose rows are requested. */
  private RowPage page;

  /** The rows from {@link #aheadFrom} to before {@link #end}; null: there is no such request. */
  private Prefetcher.Request ahead;

  private int aheadFrom;
  private int end;
  private int keyCount;
  private long requestedCount;
  private long usedCount;

  IndexedReads(Prefetcher prefetcher) {
    this.prefetcher = prefetcher;
  }

  /** Begins to compare reads with the rows of a scan. */
  void follow(Scan opened) {
    forget();
    followed = new WeakReference<>(opened);
    keyCount = FIRST_AHEAD_KEYS;
    requestedCount = 0;
    usedCount = 0;
  }

  /** Ends what {@link #follow} began, unless another scan was opened since. */
  void end(Scan closed) {
    if (followed != null && followed.refersTo(closed)) {
      forget();
    }
  }

  private void forget() {
    if (ahead != null) {
      ahead.drop();
      ahead = null;
    }
    followed = null;
    family = null;
    page = null;
  }

  /** Requests keys if this one, which is about to be read, follows the scan. */
  void beforeRead(CachedFamily of, ByteSpan key) {
    Scan scan = followed == null ? null : followed.get();
    RowPage current = scan == null ? null : scan.page;
    if (current == null || of.knowsAbsentKeys() || family != null && family != of) {
      return;
    }
    int row = find(current, scan.row, key);
    if (row < 0) {
      return;
    }
    usedCount++;
    family = of;
    if (current != page) {
      finishAhead();
      page = current;
      end = row;
    }
    if (ahead != null && row >= aheadFrom) {
      finishAhead();
      requestNext(scan);
    } else if (row >= end) {
      end = row;
      requestNext(scan);
      finishAhead();
      requestNext(scan);
    }
  }

  /** Finds the row that names a key among the last ones before a place. -1: there is none. */
  private static int find(RowPage in, int before, ByteSpan key) {
    int shared = key.length - TIME_BYTES;
    for (int row = before - 1; row >= Math.max(0, before - ScannedKeys.MAX_ROWS_BACK); row--) {
      long at = Bytes.ARRAY + in.keyOffset[row];
      if (shared >= 0
          && in.keyLength[row] == key.length
          && Bytes.equal(in.data, at + TIME_BYTES, key.base, key.offset, shared)
          && Bytes.equal(in.data, at, key.base, key.offset + shared, TIME_BYTES)) {
        return row;
      }
    }
    return -1;
  }

  /** Requests the keys that the next rows of the page name. REQUIRES: none is in flight. */
  private void requestNext(Scan scan) {
    if (usedCount * MIN_USED_DIVISOR < requestedCount) {
      return;
    }
    int limit = Math.min(keyCount, prefetcher.keyLimit(family.id) / MEMORY_DIVISOR);
    int count = Math.min(limit, scan.rowEnd - end);
    if (count <= 0) {
      return;
    }
    byte[][] keys = new byte[count][];
    int named = 0;
    for (int row = end; row < end + count; row++) {
      if (page.keyLength[row] >= TIME_BYTES) {
        keys[named++] = named(page, row);
      }
    }
    keyCount = Math.min(MAX_AHEAD_KEYS, 2 * keyCount);
    requestedCount += count;
    aheadFrom = end;
    end += count;
    ahead = prefetcher.startUncounted(family.id, keys, named);
  }

  private static byte[] named(RowPage in, int row) {
    int from = in.keyOffset[row];
    int shared = in.keyLength[row] - TIME_BYTES;
    byte[] key = new byte[shared + TIME_BYTES];
    System.arraycopy(in.data, from + TIME_BYTES, key, 0, shared);
    System.arraycopy(in.data, from, key, shared, TIME_BYTES);
    return key;
  }

  private void finishAhead() {
    Prefetcher.Request request = ahead;
    ahead = null;
    if (request != null) {
      request.finish();
    }
  }
}
