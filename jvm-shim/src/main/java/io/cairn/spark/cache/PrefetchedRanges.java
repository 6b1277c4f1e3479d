package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.RowPage;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/**
 * Rows of ranges that were requested before their scans: the answers to the last two requests of a
 * family.
 *
 * <p>The rows are committed ones: a scan merges the session's writes over them. They are not used
 * after a spill, because the engine would answer with spilled rows from then on. A range may be
 * scanned several times. Holds at most two pages per family, whose size the engine bounds.
 */
final class PrefetchedRanges {
  /** The rows of one range: those of a page from {@code first} to before {@code end}. */
  record Slice(RowPage page, int first, int end) {}

  /** Ranges that are answered: the first {@code count}. */
  private record Answer(byte[][] from, byte[][] to, int count, RowPage page, long spills) {

    /** The rows of a range that is a part of one that is answered; null: there is none. */
    Slice find(byte[] start, byte[] end) {
      int range = Arrays.binarySearch(from, 0, count, start, Arrays::compareUnsigned);
      // The last range that does not begin after the start.
      range = range >= 0 ? range : -range - 2;
      if (range < 0 || !isWithin(start, end, to[range])) {
        return null;
      }
      int first = firstRow(start);
      // The end may lie before the start: then there are no rows.
      return new Slice(page, first, end == null ? page.count : Math.max(first, firstRow(end)));
    }

    private static boolean isWithin(byte[] start, byte[] end, byte[] limit) {
      return limit == null
          || Arrays.compareUnsigned(start, limit) < 0
              && end != null
              && Arrays.compareUnsigned(end, limit) <= 0;
    }

    /** The first row whose key is not below a key. */
    private int firstRow(byte[] key) {
      ByteSpan wanted = new ByteSpan(key);
      ByteSpan found = new ByteSpan();
      int low = 0;
      int high = page.count;
      while (low < high) {
        int middle = (low + high) >>> 1;
        page.key(middle, found);
        if (Bytes.compare(found, wanted) < 0) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return low;
    }
  }

  private static final int ANSWERS = 2;

  /** Of each family the newest first. */
  private final Map<CachedFamily, Answer[]> answers = new HashMap<>();

  private boolean isUsed;
  private long misses;

  /** Adds an answer, and drops the oldest one. Returns the number of ranges that it answers. */
  int add(CachedFamily family, byte[][] from, byte[][] to, RowPage page, long spills) {
    int count = from.length;
    if (page.more) {
      // The range of the last row may have more rows.
      byte[] last = page.keyBytes(page.count - 1);
      while (count > 0 && Arrays.compareUnsigned(from[count - 1], last) > 0) {
        count--;
      }
      count--;
    }
    isUsed = true;
    Answer[] last = answers.computeIfAbsent(family, any -> new Answer[ANSWERS]);
    System.arraycopy(last, 0, last, 1, ANSWERS - 1);
    last[0] = new Answer(from, to, Math.max(0, count), page, spills);
    return Math.max(0, count);
  }

  /** Whether the rows of a range are here. */
  boolean has(CachedFamily family, byte[] from, byte[] to, long spills) {
    return lookUp(family, from, to, spills) != null;
  }

  /** Finds the rows of a range for its scan; null: they must be requested. */
  Slice find(CachedFamily family, byte[] from, byte[] to, long spills) {
    Slice found = lookUp(family, from, to, spills);
    misses += found == null && isUsed ? 1 : 0;
    return found;
  }

  private Slice lookUp(CachedFamily family, byte[] from, byte[] to, long spills) {
    Answer[] last = from == null ? null : answers.get(family);
    if (last == null) {
      return null;
    }
    for (Answer answer : last) {
      if (answer != null && answer.spills == spills) {
        Slice found = answer.find(from, to);
        if (found != null) {
          return found;
        }
      }
    }
    return null;
  }

  /** Scans that requested their rows although ranges are prefetched. */
  long misses() {
    return misses;
  }

  /** Forgets all rows; the session has ended. */
  void clear() {
    answers.clear();
    isUsed = false;
  }
}
