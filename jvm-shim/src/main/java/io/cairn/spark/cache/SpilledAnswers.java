package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.protocol.RowPage;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;

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

  /**
   * A spilled row.
   *
   * @param hash that of the key
   * @param value as {@link RowPage#paddedValue} returns it; null: the session has deleted the key
   */
  record Row(int hash, byte[] value) {}

  /** Of each family the newest answer first: rows by their keys. */
  private final Map<CachedFamily, Deque<Map<byte[], Row>>> answers = new HashMap<>();

  private final ByteSpan writtenKey = new ByteSpan();

  /**
   * Keeps the spilled rows of a reply, and drops those of the oldest one. Returns their number.
   *
   * @param skipped the keys that were spilled since the request
   */
  int add(CachedFamily family, byte[][] keys, int[] hashes, BitSet skipped, RowPage reply) {
    if (!family.hasSpilledWrites) {
      return 0;
    }
    Map<byte[], Row> rows = new TreeMap<>(Arrays::compareUnsigned);
    long bytes = 0;
    for (int i = skipped.nextClearBit(0); i < reply.count; i = skipped.nextClearBit(i + 1)) {
      boolean isPresent = reply.origin[i] == RowPage.SPILL;
      if (!isPresent && reply.origin[i] != RowPage.SPILL_DELETED) {
        continue;
      }
      bytes += keys[i].length + (isPresent ? reply.valueLength[i] : 0);
      if (bytes > MAX_BYTES) {
        break;
      }
      rows.put(keys[i], new Row(hashes[i], isPresent ? reply.paddedValue(i) : null));
    }
    Deque<Map<byte[], Row>> last = answers.computeIfAbsent(family, any -> new ArrayDeque<>());
    last.addFirst(rows);
    if (last.size() > ANSWERS) {
      last.removeLast();
    }
    return rows.size();
  }

  /** Finds the row of a key that neither the write buffer nor the cache can answer, or null. */
  Row find(CachedFamily family, ByteSpan key) {
    Deque<Map<byte[], Row>> last = answers.get(family);
    if (last == null) {
      return null;
    }
    byte[] wanted = key.toArray();
    for (Map<byte[], Row> rows : last) {
      Row row = rows.get(wanted);
      if (row != null) {
        return row;
      }
    }
    return null;
  }

  /** Drops the rows of keys with one of these writes, which are about to be spilled. */
  void noteSpill(CachedFamily family, EntryMap written) {
    Deque<Map<byte[], Row>> last = answers.get(family);
    if (last == null) {
      return;
    }
    for (Map<byte[], Row> rows : last) {
      rows.entrySet()
          .removeIf(
              entry -> {
                writtenKey.set(entry.getKey());
                return written.find(entry.getValue().hash(), writtenKey) != 0;
              });
    }
  }

  /** Forgets all rows; the session has ended. */
  void clear() {
    answers.clear();
    writtenKey.clear();
  }
}
