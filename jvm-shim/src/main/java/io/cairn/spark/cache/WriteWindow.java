package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.Slabs;
import java.util.Arrays;
import org.apache.spark.unsafe.Platform;

/**
 * Some writes of a scan in about the order of their keys, so that reads in other stores that follow
 * the scan are in order, too ({@link AscendingReads}). Writes whose keys differ only after 6 bytes
 * or more may be in another order.
 */
final class WriteWindow {
  /** Writes of one window. */
  static final int MAX_WRITES = 1 << 15;

  private static final long INDEX_BITS = MAX_WRITES - 1L;

  private final Slabs slabs;
  private final int[] addresses = new int[MAX_WRITES];
  private final long[] words = new long[MAX_WRITES];
  private int count;
  private int position;

  WriteWindow(Slabs slabs) {
    this.slabs = slabs;
  }

  boolean isFull() {
    return count == MAX_WRITES;
  }

  boolean isEmpty() {
    return count == 0;
  }

  /** Adds the write at an address. REQUIRES: not full; nothing was taken since the last clear. */
  void add(int address) {
    addresses[count++] = address;
  }

  /** Sorts the writes that were added. */
  void sort() {
    int shared = sharedPrefix();
    for (int i = 0; i < count; i++) {
      words[i] = wordAt(addresses[i], shared) & ~INDEX_BITS | i;
    }
    Arrays.sort(words, 0, count);
    position = 0;
  }

  private int sharedPrefix() {
    byte[] first = slabs.array(addresses[0]);
    long firstAt = Slabs.at(addresses[0]);
    int shared = Entry.keyLength(first, firstAt);
    for (int i = 1; i < count && shared > 0; i++) {
      byte[] slab = slabs.array(addresses[i]);
      long at = Slabs.at(addresses[i]);
      int end = Math.min(shared, Entry.keyLength(slab, at));
      int from = (int) (Entry.keyAt(firstAt) - Bytes.ARRAY);
      int to = (int) (Entry.keyAt(at) - Bytes.ARRAY);
      int different = Arrays.mismatch(first, from, from + end, slab, to, to + end);
      shared = different < 0 ? end : different;
    }
    return shared;
  }

  /** A number that orders, as signed, like the 8 bytes of the key from {@code skip} on. */
  private long wordAt(int address, int skip) {
    byte[] slab = slabs.array(address);
    long at = Slabs.at(address);
    int length = Entry.keyLength(slab, at) - skip;
    long keyAt = Entry.keyAt(at) + skip;
    long word = 0;
    for (int i = 0; i < Long.BYTES; i++) {
      word = word << Byte.SIZE | (i < length ? Platform.getByte(slab, keyAt + i) & 0xffL : 0);
    }
    return word ^ Long.MIN_VALUE;
  }

  /** The address that {@link #take} returns next; 0: there is none. */
  int peek() {
    return position < count ? addresses[(int) (words[position] & INDEX_BITS)] : 0;
  }

  /** The address of the next write; 0: there is none, and others may be added. */
  int take() {
    if (position < count) {
      return addresses[(int) (words[position++] & INDEX_BITS)];
    }
    count = 0;
    position = 0;
    return 0;
  }
}
