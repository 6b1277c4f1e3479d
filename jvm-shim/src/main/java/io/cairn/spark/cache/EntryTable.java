package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;

/**
 * Open addressing from a key's hash to its entry's address, linear probing, one {@code long} a
 * slot: {@code hash << 32 | address}, 0 empty.
 *
 * <p>Holes are closed on removal, so there are no tombstones. At most three quarters full.
 */
final class EntryTable {
  private static final int MIN_SLOTS = 16;
  private static final int OVERHEAD_BYTES = 16;

  private final MemoryAccount room;
  private long[] slots;
  private int mask;
  private int count;

  EntryTable(MemoryAccount room) {
    this.room = room;
  }

  int count() {
    return count;
  }

  long bytes() {
    return slots == null ? 0 : slots.length * 8L + OVERHEAD_BYTES;
  }

  int find(Slabs slabs, int hash, Object keyBase, long keyOffset, int keyLength) {
    long[] table = slots;
    if (table == null) {
      return 0;
    }
    int m = mask;
    for (int i = hash & m; ; i = (i + 1) & m) {
      long slot = table[i];
      if (slot == 0) {
        return 0;
      }
      if ((int) (slot >>> 32) == hash) {
        int address = (int) slot;
        byte[] slab = slabs.array(address);
        long at = Slabs.at(address);
        if (Entry.keyLength(slab, at) == keyLength
            && Bytes.equal(slab, Entry.key(at), keyBase, keyOffset, keyLength)) {
          return address;
        }
      }
    }
  }

  /** Makes sure that one more entry fits. False: no room. */
  boolean ensure() {
    while (slots == null || (count + 1) * 4L > slots.length * 3L) {
      long[] before = slots;
      int length = before == null ? MIN_SLOTS : before.length * 2;
      if (length < 0 || !room.take(length * 8L + OVERHEAD_BYTES)) {
        return false;
      }
      if (slots != before) {
        room.give(length * 8L + OVERHEAD_BYTES);
        continue;
      }
      rehash(length);
    }
    return true;
  }

  /** Gives back what a table that lost most of its entries need not hold. */
  void shrink() {
    if (count == 0) {
      clear();
      return;
    }
    int length = slots.length;
    while (length > MIN_SLOTS && count * 4L < length) {
      length /= 2;
    }
    if (length * 4L <= slots.length && room.take(length * 8L + OVERHEAD_BYTES)) {
      rehash(length);
    }
  }

  private void rehash(int length) {
    long[] before = slots;
    long[] table = new long[length];
    int m = length - 1;
    if (before != null) {
      for (long slot : before) {
        if (slot != 0) {
          int i = (int) (slot >>> 32) & m;
          while (table[i] != 0) {
            i = (i + 1) & m;
          }
          table[i] = slot;
        }
      }
      room.give(before.length * 8L + OVERHEAD_BYTES);
    }
    slots = table;
    mask = m;
  }

  /** Adds an entry whose key is not there; after {@link #ensure}. */
  void add(int hash, int address) {
    int i = hash & mask;
    while (slots[i] != 0) {
      i = (i + 1) & mask;
    }
    slots[i] = (long) hash << 32 | address & 0xffffffffL;
    count++;
  }

  /** Lets an entry's slot point to its new address. False: it is not in the table. */
  boolean move(int hash, int from, int to) {
    int i = slotOf(hash, from);
    if (i < 0) {
      return false;
    }
    slots[i] = (long) hash << 32 | to & 0xffffffffL;
    return true;
  }

  boolean remove(int hash, int address) {
    int hole = slotOf(hash, address);
    if (hole < 0) {
      return false;
    }
    int i = hole;
    while (true) {
      i = (i + 1) & mask;
      long slot = slots[i];
      if (slot == 0) {
        break;
      }
      int home = (int) (slot >>> 32) & mask;
      if (((i - home) & mask) >= ((i - hole) & mask)) {
        slots[hole] = slot;
        hole = i;
      }
    }
    slots[hole] = 0;
    count--;
    return true;
  }

  private int slotOf(int hash, int address) {
    if (slots == null) {
      return -1;
    }
    long wanted = (long) hash << 32 | address & 0xffffffffL;
    for (int i = hash & mask; slots[i] != 0; i = (i + 1) & mask) {
      if (slots[i] == wanted) {
        return i;
      }
    }
    return -1;
  }

  void clear() {
    room.give(bytes());
    slots = null;
    mask = 0;
    count = 0;
  }
}
