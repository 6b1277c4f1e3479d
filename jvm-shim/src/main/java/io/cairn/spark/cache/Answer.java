package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.protocol.RowPage;
import java.util.Arrays;
import java.util.BitSet;

/**
 * A request of rows: the keys that it covers, in parts, and the reply as soon as it is here.
 *
 * <p>The rows are those below the session's write buffer at the time of the request, committed or
 * spilled. A part is outdated as a whole if one of its keys is spilled later.
 */
abstract class Answer {
  /** The rows of a key or range: those of a page from {@code first} to before {@code end}. */
  record Rows(RowPage page, int first, int end) {}

  final CachedFamily family;

  /** By part; also those of which the reply has no rows. */
  final BitSet outdated = new BitSet();

  /** Null: the reply is not here. */
  RowPage page;

  /** Reads of single keys that found their answer here. */
  int readCount;

  private Answer(CachedFamily family) {
    this.family = family;
  }

  /** Takes the reply, which may answer the first parts only. */
  void receive(RowPage reply) {
    page = reply;
  }

  /** The part that covers a key; -1: there is none. */
  abstract int partOf(ByteSpan key);

  /** The row of a key that a part covers, or none. */
  abstract Rows rowOf(ByteSpan key, int part);

  /** The rows of a range that is within one part; null: it is not, or that is not known. */
  Rows slice(byte[] from, byte[] to) {
    return null;
  }

  /** The row of a key, or none if there is none; null: that is not known here. */
  final Rows find(ByteSpan key) {
    int part = partOf(key);
    if (part < 0 || outdated.get(part)) {
      return null;
    }
    readCount++;
    return rowOf(key, part);
  }

  /** Marks the parts that have a key of these writes, which are about to be spilled. */
  void noteSpill(EntryMap written) {
    ByteSpan key = new ByteSpan();
    for (EntryCursor entries = written.cursor(false); entries.next(); ) {
      Entry.key(entries.slab, entries.at, key);
      int part = partOf(key);
      if (part >= 0) {
        outdated.set(part);
      }
    }
  }

  /** The first row whose key is not below a key. REQUIRES: the rows have keys, which ascend. */
  final int firstRow(ByteSpan key) {
    ByteSpan found = new ByteSpan();
    int low = 0;
    int high = page.count;
    while (low < high) {
      int middle = (low + high) >>> 1;
      page.key(middle, found);
      if (Bytes.compare(found, key) < 0) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  /** The row of a key in a page whose rows ascend from {@code first} on, or none. */
  final Rows rowAt(ByteSpan key, int first) {
    boolean isPresent = false;
    if (first < page.count) {
      ByteSpan found = new ByteSpan();
      page.key(first, found);
      isPresent = Bytes.compare(found, key) == 0;
    }
    return new Rows(page, first, isPresent ? first + 1 : first);
  }

  /** The last of the first {@code count} keys that is not above a key; -1: all are. */
  private static int floor(byte[][] keys, int count, ByteSpan key) {
    int low = 0;
    int high = count;
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (compare(keys[middle], key) <= 0) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low - 1;
  }

  private static int compare(byte[] a, ByteSpan b) {
    return Bytes.compare(a, Bytes.ARRAY, a.length, b.base, b.offset, b.length);
  }

  /** Single keys, which ascend; row i of the reply is that of key i. */
  static final class Keys extends Answer {
    final byte[][] keys;
    final int[] hashes;

    Keys(CachedFamily family, byte[][] keys, int[] hashes) {
      super(family);
      this.keys = keys;
      this.hashes = hashes;
    }

    /** Keys that are answered and not outdated. */
    int currentCount() {
      return page.count - outdated.get(0, page.count).cardinality();
    }

    @Override
    int partOf(ByteSpan key) {
      int at = floor(keys, page.count, key);
      return at >= 0 && compare(keys[at], key) == 0 ? at : -1;
    }

    @Override
    Rows rowOf(ByteSpan key, int part) {
      byte origin = page.origin[part];
      boolean isPresent = origin == RowPage.COMMITTED || origin == RowPage.SPILL;
      return new Rows(page, part, isPresent ? part + 1 : part);
    }

    /** The hashes are here: a search of the writes costs less than one of the keys. */
    @Override
    void noteSpill(EntryMap written) {
      ByteSpan key = new ByteSpan();
      for (int i = 0; i < keys.length; i++) {
        key.set(keys[i]);
        if (written.find(hashes[i], key) != 0) {
          outdated.set(i);
        }
      }
    }
  }

  /** Ranges, which ascend and do not overlap. The rows of the reply ascend too. */
  static final class Ranges extends Answer {
    final byte[][] from;

    /** Exclusive; null: the end of the family. */
    final byte[][] to;

    /** The ranges that are answered, or may be: the first ones. */
    private int count;

    Ranges(CachedFamily family, byte[][] from, byte[][] to) {
      super(family);
      this.from = from;
      this.to = to;
      count = from.length;
    }

    @Override
    void receive(RowPage reply) {
      super.receive(reply);
      if (reply.more) {
        // The range of the last row may have more rows.
        ByteSpan last = new ByteSpan();
        reply.key(reply.count - 1, last);
        count = Math.max(0, floor(from, count, last));
      }
    }

    int count() {
      return count;
    }

    /** The ranges that are not answered, or outdated. */
    Ranges rest() {
      BitSet left = outdated.get(0, count);
      left.set(count, from.length);
      int[] places = left.stream().toArray();
      byte[][] restFrom = new byte[places.length][];
      byte[][] restTo = new byte[places.length][];
      for (int i = 0; i < places.length; i++) {
        restFrom[i] = from[places[i]];
        restTo[i] = to[places[i]];
      }
      return new Ranges(family, restFrom, restTo);
    }

    @Override
    int partOf(ByteSpan key) {
      int range = floor(from, count, key);
      return range >= 0 && (to[range] == null || compare(to[range], key) > 0) ? range : -1;
    }

    @Override
    Rows rowOf(ByteSpan key, int part) {
      return rowAt(key, firstRow(key));
    }

    @Override
    Rows slice(byte[] start, byte[] end) {
      ByteSpan first = new ByteSpan(start);
      int range = partOf(first);
      if (range < 0 || outdated.get(range) || !isBefore(end, to[range])) {
        return null;
      }
      int row = firstRow(first);
      // The end may lie before the start: then there are no rows.
      return new Rows(
          page, row, end == null ? page.count : Math.max(row, firstRow(new ByteSpan(end))));
    }

    private static boolean isBefore(byte[] end, byte[] limit) {
      return limit == null || end != null && Arrays.compareUnsigned(end, limit) <= 0;
    }
  }

  /**
   * All rows from a key on, to the last row of the page, or to the end of the family. A part is a
   * row with the keys before it that do not exist.
   */
  static final class Page extends Answer {
    private final byte[] from;

    Page(CachedFamily family, byte[] from, RowPage page) {
      super(family);
      this.from = from;
      receive(page);
    }

    @Override
    int partOf(ByteSpan key) {
      if (compare(from, key) > 0) {
        return -1;
      }
      int row = firstRow(key);
      return row < page.count || !page.more ? row : -1;
    }

    @Override
    Rows rowOf(ByteSpan key, int part) {
      return rowAt(key, part);
    }
  }
}
