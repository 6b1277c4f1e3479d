package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.KeySort;
import io.cairn.spark.protocol.RowPage;
import java.lang.ref.WeakReference;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.function.UnaryOperator;

/**
 * Requests the keys of coming reads in bulk from the rows of an open scan, if its family is an
 * index of the family that is read.
 *
 * <p>An operator that scans an index reads each row that this names, or none. So the first reads
 * are compared with the rows that the scan has returned last. Only rows of the scan's present page
 * are requested.
 *
 * <p>Threads: as the session.
 */
final class IndexedReads {
  /**
   * The requests have half of the keys that a prefetch may have. The rows are removed as they are
   * read, and with all of them the removals evicted one of eight before its read.
   */
  private static final int MEMORY_DIVISOR = 2;

  /**
   * @param rows the family whose keys the index names
   * @param keyOf returns the key that a key of the index names; null: none
   */
  private record Index(int rows, UnaryOperator<byte[]> keyOf) {}

  private final Prefetcher prefetcher;

  /** By the family of the index. */
  private final Map<Integer, Index> indexes = new HashMap<>();

  /** The scan of an index that was opened last, unless its user has abandoned it; null: none. */
  private WeakReference<Scan> followed;

  private Index index;

  /** The page of the scan whose rows are requested, and the keys that these name. */
  private RowPage page;

  private byte[][] named;

  /** The end of the rows of the page whose keys were requested. */
  private int end;

  private AheadLimit limit;

  /** Keys of the last request, and reads that have followed the scan since. */
  private int requestedCount;

  private int readCount;

  IndexedReads(Prefetcher prefetcher) {
    this.prefetcher = prefetcher;
  }

  /** Makes a family known as the index of another one. */
  void add(int indexFamily, int rows, UnaryOperator<byte[]> keyOf) {
    indexes.put(indexFamily, new Index(rows, keyOf));
  }

  /** Begins to compare reads with the rows of a scan, if it is one of an index. */
  void follow(Scan opened) {
    Index of = indexes.get(opened.family.id);
    if (of == null) {
      return;
    }
    forget();
    followed = new WeakReference<>(opened);
    index = of;
    limit = new AheadLimit();
    requestedCount = 0;
    readCount = 0;
  }

  /** Ends what {@link #follow} began, unless another scan was opened since. */
  void end(Scan closed) {
    if (followed != null && followed.refersTo(closed)) {
      forget();
    }
  }

  private void forget() {
    followed = null;
    page = null;
    named = null;
  }

  /** Requests keys if this one, which is about to be read, follows the scan. */
  void beforeRead(CachedFamily of, ByteSpan key) {
    Scan scan = followed == null ? null : followed.get();
    RowPage current = scan == null || of.id != index.rows ? null : scan.page;
    if (current == null || of.knowsAbsentKeys()) {
      return;
    }
    if (current != page) {
      page = current;
      named = new byte[scan.rowEnd][];
      end = 0;
    }
    int row = find(key, scan.row - 1);
    if (row >= end) {
      request(row, scan.rowEnd);
    }
    readCount += row >= 0 ? 1 : 0;
  }

  /** Finds the row that names a key among the last ones up to {@code passed}. -1: none does. */
  private int find(ByteSpan key, int passed) {
    byte[] wanted = null;
    for (int row = passed; row >= Math.max(0, passed - ScannedKeys.MAX_ROWS_BACK + 1); row--) {
      byte[] name = named(row);
      if (name != null && name.length == key.length) {
        wanted = wanted == null ? key.toArray() : wanted;
        if (Arrays.equals(name, wanted)) {
          return row;
        }
      }
    }
    return -1;
  }

  private byte[] named(int row) {
    if (named[row] == null) {
      named[row] = index.keyOf.apply(page.keyBytes(row));
    }
    return named[row];
  }

  /** Requests the keys that the rows of the page name, from one to before the end of the range. */
  private void request(int from, int rowEnd) {
    int most = Math.min(rowEnd - from, prefetcher.keyLimit(index.rows) / MEMORY_DIVISOR);
    int count = Math.min(most, limit.next(requestedCount, readCount));
    requestedCount = count;
    readCount = 0;
    if (count == 0) {
      return;
    }
    byte[][] keys = new byte[count][];
    int keyCount = 0;
    for (int row = from; row < from + count; row++) {
      if (named(row) != null) {
        keys[keyCount++] = named(row);
      }
    }
    KeySort.sort(keys, keyCount);
    prefetcher.fetch(index.rows, keys, keyCount);
    end = from + count;
  }
}
