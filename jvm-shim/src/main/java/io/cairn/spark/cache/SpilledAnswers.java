package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.protocol.RowPage;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Rows that the open session has spilled and requested before their reads: of each family those of
 * the last two requests.
 *
 * <p>They are not committed, so the cache of committed entries cannot have them. Without them each
 * read of a key that a batch has written and spilled would be a request of its own. A row is
 * outdated once a newer write of its key is spilled. Each request may keep {@link #MAX_BYTES} of
 * keys and values; no bound on the memory counts them. Threads: as the session.
 */
final class SpilledAnswers {
  private static final int MAX_BYTES = 1 << 18;
  private static final int ANSWERS = 2;

  /** Before a value, so that the row after its version byte is 8-aligned, as in a slab. */
  private static final int PADDING = 7;

  /**
   * A spilled row.
   *
   * @param value after {@link #PADDING} bytes; null: the session has deleted the key
   */
  record Row(byte[] key, int hash, byte[] value) {
    /** Sets a span to the value. REQUIRES: the key is not deleted. */
    void value(ByteSpan out) {
      out.set(value, Bytes.ARRAY + PADDING, value.length - PADDING);
    }
  }

  /** Of each family the newest answer first; its rows ascend. */
  private final Map<CachedFamily, List<List<Row>>> answers = new HashMap<>();

  private final ByteSpan other = new ByteSpan();

  /**
   * Keeps the spilled rows of a reply, and drops those of the oldest one. Returns their number.
   *
   * @param keys those of the request, ascending
   * @param skipped the keys that were spilled since the request
   */
  int add(CachedFamily family, byte[][] keys, int[] hashes, BitSet skipped, RowPage reply) {
    if (!family.isSpilled) {
      return 0;
    }
    List<Row> rows = new ArrayList<>();
    int bytes = 0;
    for (int i = skipped.nextClearBit(0); i < reply.count; i = skipped.nextClearBit(i + 1)) {
      boolean isDeleted = reply.origin[i] == RowPage.SPILL_DELETED;
      if (!isDeleted && reply.origin[i] != RowPage.SPILL) {
        continue;
      }
      int length = isDeleted ? 0 : reply.valueLength[i];
      bytes += keys[i].length + length;
      if (bytes > MAX_BYTES) {
        break;
      }
      byte[] value = null;
      if (!isDeleted) {
        value = new byte[PADDING + length];
        System.arraycopy(reply.data, reply.valueOffset[i], value, PADDING, length);
      }
      rows.add(new Row(keys[i], hashes[i], value));
    }
    List<List<Row>> last = answers.computeIfAbsent(family, any -> new ArrayList<>());
    if (last.size() == ANSWERS) {
      last.remove(ANSWERS - 1);
    }
    last.add(0, rows);
    return rows.size();
  }

  /** Finds the row of a key that neither the write buffer nor the cache can answer, or null. */
  Row find(CachedFamily family, ByteSpan key) {
    for (List<Row> rows : answers.getOrDefault(family, List.of())) {
      int low = 0;
      int high = rows.size();
      while (low < high) {
        int middle = (low + high) >>> 1;
        other.set(rows.get(middle).key);
        int order = Bytes.compare(other, key);
        if (order == 0) {
          return rows.get(middle);
        }
        if (order < 0) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
    }
    return null;
  }

  /** Drops the rows of keys with one of these writes, which are about to be spilled. */
  void noteSpill(CachedFamily family, EntryMap written) {
    for (List<Row> rows : answers.getOrDefault(family, List.of())) {
      rows.removeIf(
          row -> {
            other.set(row.key);
            return written.find(row.hash, other) != 0;
          });
    }
  }

  /** Forgets all rows; the session has ended. */
  void clear() {
    answers.clear();
    other.clear();
  }
}
