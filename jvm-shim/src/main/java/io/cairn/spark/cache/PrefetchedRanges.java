package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.cache.memory.OrderIndex;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.RowPage;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;

/**
 * Rows of ranges that were requested before their scans: the answers to the last two requests of a
 * family.
 *
 * <p>The rows are those below the session's write buffer: a scan merges the writes over them. When
 * the writes are spilled, the ranges that have one of them are outdated, because the engine would
 * answer with the spilled rows from then on. A range may be scanned several times. Holds at most
 * four pages per family, whose size the engine bounds; mostly two are much smaller.
 */
final class PrefetchedRanges {
  /** The rows of one range: those of a page from {@code first} to before {@code end}. */
  record Slice(RowPage page, int first, int end) {}

  /**
   * Ranges that are requested together; they ascend and do not overlap.
   *
   * @param from inclusive; {@code to} is exclusive, null: the end of the family
   * @param outdated those with a key that was spilled since the request
   */
  record Ranges(byte[][] from, byte[][] to, BitSet outdated) {
    Ranges(byte[][] from, byte[][] to) {
      this(from, to, new BitSet());
    }

    int count() {
      return from.length;
    }

    /** The ranges from the one of this index on, and those before it that are outdated. */
    Ranges rest(int index) {
      int count = outdated.get(0, index).cardinality() + from.length - index;
      byte[][] restFrom = new byte[count][];
      byte[][] restTo = new byte[count][];
      for (int i = 0, place = 0; i < from.length; i++) {
        if (i >= index || outdated.get(i)) {
          restFrom[place] = from[i];
          restTo[place++] = to[i];
        }
      }
      return new Ranges(restFrom, restTo);
    }

    /**
     * Marks the ranges that have one of these writes, which are about to be spilled. REQUIRES: the
     * writes keep their order; null: there are none.
     */
    void noteSpill(EntryMap written) {
      if (written == null) {
        return;
      }
      OrderIndex order = written.order();
      ByteSpan wanted = new ByteSpan();
      ByteSpan found = new ByteSpan();
      for (int i = outdated.nextClearBit(0); i < from.length; i = outdated.nextClearBit(i + 1)) {
        wanted.set(from[i]);
        long position = order.seek(wanted, true);
        if (position == OrderIndex.END) {
          return;
        }
        int address = order.address(position);
        Entry.key(written.slab(address), Slabs.at(address), found);
        if (to[i] != null) {
          wanted.set(to[i]);
        }
        if (to[i] == null || Bytes.compare(found, wanted) < 0) {
          outdated.set(i);
        }
      }
    }
  }

  /** Ranges that are answered: the first {@code count}. */
  private record Answer(Ranges ranges, int count, RowPage page) {

    /** The rows of a range that is a part of one that is answered; null: there is none. */
    Slice find(byte[] start, byte[] end) {
      int range = Arrays.binarySearch(ranges.from, 0, count, start, Arrays::compareUnsigned);
      // The last range that does not begin after the start.
      range = range >= 0 ? range : -range - 2;
      if (range < 0 || ranges.outdated.get(range) || !isWithin(start, end, ranges.to[range])) {
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

  /** The replies to two requests: of each to the request itself, and to that of its rest. */
  private static final int ANSWERS = 4;

  private static final int MARGIN_DIVISOR = 16;
  private static final int GROWTH_DIVISOR = 64;
  private static final Answer[] NONE = {};

  /** Of each family those to the newest request first. */
  private final Map<CachedFamily, Answer[]> answers = new HashMap<>();

  private boolean isUsed;
  private long misses;

  /** By the family's id. They outlive the session. */
  private final Map<Integer, Integer> limits = new HashMap<>();

  /**
   * Ranges of a family that its next request should have at most: so many as one reply can answer.
   * The task waits for the reply to the others, so the limit grows slowly.
   */
  int limit(int family) {
    return limits.getOrDefault(family, Integer.MAX_VALUE);
  }

  /**
   * Adds the reply to a request, and drops those to the oldest one.
   *
   * @return the number of ranges that it answers: the first ones
   */
  int add(CachedFamily family, Ranges ranges, RowPage page) {
    int count = answered(ranges, page);
    limits.put(
        family.id,
        page.more
            ? count - count / MARGIN_DIVISOR
            : Math.max(limit(family.id), count + count / GROWTH_DIVISOR + 1));
    isUsed = true;
    Answer[] last = answers.computeIfAbsent(family, any -> new Answer[ANSWERS]);
    System.arraycopy(last, 0, last, 2, ANSWERS - 2);
    last[0] = new Answer(ranges, count, page);
    last[1] = null;
    return count;
  }

  /**
   * Adds the reply to the rest of the newest request.
   *
   * @return the number of ranges that it answers: the first ones
   */
  int addRest(CachedFamily family, Ranges rest, RowPage page) {
    int count = answered(rest, page);
    answers.get(family)[1] = new Answer(rest, count, page);
    return count;
  }

  private static int answered(Ranges ranges, RowPage page) {
    int count = ranges.from.length;
    if (page.more) {
      // The range of the last row may have more rows.
      byte[] last = page.keyBytes(page.count - 1);
      while (count > 0 && Arrays.compareUnsigned(ranges.from[count - 1], last) > 0) {
        count--;
      }
      count--;
    }
    return Math.max(0, count);
  }

  /** Marks the ranges of a family that have one of these writes, which are about to be spilled. */
  void noteSpill(CachedFamily family, EntryMap written) {
    for (Answer answer : answers.getOrDefault(family, NONE)) {
      if (answer != null) {
        answer.ranges.noteSpill(written);
      }
    }
  }

  /** Whether the rows of a range are here. */
  boolean has(CachedFamily family, byte[] from, byte[] to) {
    return lookUp(family, from, to) != null;
  }

  /** Finds the rows of a range for its scan; null: they must be requested. */
  Slice find(CachedFamily family, byte[] from, byte[] to) {
    Slice found = lookUp(family, from, to);
    misses += found == null && isUsed ? 1 : 0;
    return found;
  }

  /** Finds the row of a key, or that there is none, for its read; null: it must be requested. */
  Slice find(CachedFamily family, ByteSpan key) {
    if (!answers.containsKey(family)) {
      return null;
    }
    byte[] from = key.toArray();
    return lookUp(family, from, Arrays.copyOf(from, from.length + 1));
  }

  private Slice lookUp(CachedFamily family, byte[] from, byte[] to) {
    Answer[] last = from == null ? null : answers.get(family);
    if (last == null) {
      return null;
    }
    for (Answer answer : last) {
      Slice found = answer == null ? null : answer.find(from, to);
      if (found != null) {
        return found;
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
