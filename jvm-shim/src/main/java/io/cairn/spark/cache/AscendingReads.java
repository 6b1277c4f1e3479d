package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;
import java.util.Arrays;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Consumer;

/**
 * Answers single reads of one family that come in the order of their keys, from pages of a scan: a
 * page costs about as much as two single reads.
 *
 * <p>Spark's joins read so when they remove old rows: they scan the lengths of all lists, and get
 * each list's elements. The pages are not put into the cache. They have the rows below the
 * session's write buffer, so a spill makes those outdated whose keys it has. After a page of which
 * few rows were read, some reads pass before the next one is tried. There are at most two pages, as
 * of an open scan.
 *
 * <p>Threads: as the session.
 */
final class AscendingReads {
  /** So many reads in ascending order come by chance about never. */
  private static final int MIN_READS = 16;

  /** A read below the one before it costs so many of the ascending ones: a list's last element. */
  private static final int DESCENT = 4;

  private static final int MAX_READS = 2 * MIN_READS;

  /** A page pays only if one row in so many is read. */
  private static final int MIN_USED_DIVISOR = 16;

  private static final int FIRST_PAGE_ROWS = 64;
  private static final int MAX_PAGE_ROWS = 4096;
  private static final int MAX_PAGE_BYTES = 1 << 19;

  /** Reads without a page after one that was not used. */
  private static final int MIN_PAUSE = 32;

  private static final int MAX_PAUSE = 1024;

  /** More spilled keys than this in or behind the pages make them outdated as a whole. */
  private static final int MAX_OUTDATED_KEYS = 4096;

  /** What {@link #find} returns if the row is not here. */
  static final int UNKNOWN = -1;

  /** What {@link #find} returns if neither the committed version nor a spill has the key. */
  static final int ABSENT = -2;

  private final CachedFamily family;
  private final ScanPages pages;
  private final Consumer<RowPage> onPage;
  private byte[] lastKey = new byte[64];
  private int lastLength = -1;
  private int ascending;

  /** Has all rows from {@link #from} to its last key, or to the end; null: there is none. */
  private RowPage page;

  private byte[] from;
  private boolean isFromInclusive;

  /** The row of the last answer. */
  private int row;

  /** Answers from the page. */
  private int usedCount;

  private int pageRows = FIRST_PAGE_ROWS;

  /** Reads until the next page is tried. */
  private int pause;

  private int nextPause = MIN_PAUSE;

  /** Keys that were spilled after a page was requested. */
  private final Set<byte[]> outdatedKeys = new TreeSet<>(Arrays::compareUnsigned);

  /** The pages from before the last spill: this one, and the one that is requested ahead. */
  private int olderPages;

  private final ByteSpan rowKey = new ByteSpan();

  /**
   * @param onPage receives each page that is read
   */
  AscendingReads(CachedFamily family, PageSource source, Consumer<RowPage> onPage) {
    this.family = family;
    this.onPage = onPage;
    pages = new ScanPages(source);
  }

  /** The page of the row that {@link #find} has returned. */
  RowPage page() {
    return page;
  }

  /**
   * Finds a key that neither the write buffer nor the cache has.
   *
   * @return its row in {@link #page}, {@link #ABSENT}, or {@link #UNKNOWN}
   */
  int find(ByteSpan key) {
    note(key);
    if (!outdatedKeys.isEmpty() && outdatedKeys.contains(key.toArray())) {
      return UNKNOWN;
    }
    if (page == null || !isFromBefore(key)) {
      if (ascending < MIN_READS || pause-- > 0) {
        return UNKNOWN;
      }
      read(key.toArray(), true);
    }
    while (isBehind(key)) {
      if (!page.more) {
        return ABSENT;
      }
      if (usedCount * MIN_USED_DIVISOR < page.count) {
        drop();
        pause = nextPause;
        nextPause = Math.min(MAX_PAUSE, 2 * nextPause);
        return UNKNOWN;
      }
      nextPause = MIN_PAUSE;
      read(page.keyBytes(page.count - 1), false);
    }
    return search(key);
  }

  /** Compares the key with the one before it. */
  private void note(ByteSpan key) {
    if (lastLength >= 0) {
      int order = Bytes.compare(lastKey, Bytes.ARRAY, lastLength, key.base, key.offset, key.length);
      ascending = order > 0 ? Math.max(0, ascending - DESCENT) : Math.min(MAX_READS, ascending + 1);
      if (ascending == 0) {
        drop();
      }
    }
    if (key.length > lastKey.length) {
      lastKey = new byte[2 * key.length];
    }
    Bytes.copy(key, lastKey, Bytes.ARRAY);
    lastLength = key.length;
  }

  /** Whether the page begins at the key or before it. */
  private boolean isFromBefore(ByteSpan key) {
    int order = Bytes.compare(from, Bytes.ARRAY, from.length, key.base, key.offset, key.length);
    return order < 0 || order == 0 && isFromInclusive;
  }

  /** Whether the page ends before the key. */
  private boolean isBehind(ByteSpan key) {
    return page.count == 0 || compareRow(page.count - 1, key) < 0;
  }

  private void read(byte[] start, boolean isInclusive) {
    ScanRequest request =
        new ScanRequest(family.id, start, isInclusive, null, pageRows, MAX_PAGE_BYTES);
    page = pages.read(request);
    onPage.accept(page);
    if (olderPages > 0 && --olderPages == 0) {
      outdatedKeys.clear();
    }
    pageRows = Math.min(MAX_PAGE_ROWS, pageRows * 2);
    if (!isInclusive) {
      pages.readAhead(
          page, new ScanRequest(family.id, start, false, null, pageRows, MAX_PAGE_BYTES));
    }
    from = start;
    isFromInclusive = isInclusive;
    row = 0;
    usedCount = 0;
  }

  /** Notes that these writes are about to be spilled: the pages have older rows of their keys. */
  void noteSpill(EntryMap written) {
    if (page == null) {
      return;
    }
    ByteSpan last = new ByteSpan();
    last.set(lastKey, Bytes.ARRAY, lastLength);
    if (isFromBefore(last) && !isBehind(last)) {
      // What was passed is not answered any more, so most of the spilled keys need not be kept.
      from = last.toArray();
      isFromInclusive = false;
    }
    ByteSpan start = new ByteSpan(from);
    for (EntryCursor entries = written.cursor(false); entries.next(); ) {
      Entry.key(entries.slab, entries.at, rowKey);
      if (Bytes.compare(rowKey, start) >= 0) {
        outdatedKeys.add(rowKey.toArray());
        if (outdatedKeys.size() > MAX_OUTDATED_KEYS) {
          drop();
          return;
        }
      }
    }
    olderPages = 2;
  }

  /** Searches the page from the last answer on, in growing steps. REQUIRES: it covers the key. */
  private int search(ByteSpan key) {
    int low = compareRow(row, key) <= 0 ? row : 0;
    int high = low + 1;
    for (int step = 1; high < page.count && compareRow(high, key) <= 0; step *= 2) {
      low = high;
      high += step;
    }
    high = Math.min(high, page.count);
    while (low + 1 < high) {
      int middle = (low + high) >>> 1;
      if (compareRow(middle, key) <= 0) {
        low = middle;
      } else {
        high = middle;
      }
    }
    row = low;
    usedCount++;
    return compareRow(low, key) == 0 ? low : ABSENT;
  }

  private int compareRow(int at, ByteSpan key) {
    page.key(at, rowKey);
    return Bytes.compare(rowKey, key);
  }

  /** Forgets the page: its rows are outdated, or nobody needs them. */
  void drop() {
    page = null;
    from = null;
    pages.drop();
    outdatedKeys.clear();
    olderPages = 0;
    rowKey.clear();
    pageRows = FIRST_PAGE_ROWS;
  }
}
