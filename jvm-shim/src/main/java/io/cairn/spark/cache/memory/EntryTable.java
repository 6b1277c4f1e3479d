package io.cairn.spark.cache.memory;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;

/**
 * Hash table from keys to addresses of entries: open addressing, linear probing, one {@code long}
 * per slot: {@code hash << 32 | address}, 0 is empty.
 *
 * <p>A removal moves later entries up, so there are no tombstones. At most three quarters full.
 */
final class EntryTable {
  private static final int MIN_SLOTS = 16;
  private static final int OVERHEAD_BYTES = 16;
  private static final int EXPECTED_FREE_FACTOR = 8;

  private final MemoryAccount account;
  private final Slabs slabs;
  private long[] slots;
  private int mask;
  private int count;

  /** Entries that fit without growth. */
  private int limit;

  EntryTable(MemoryAccount account, Slabs slabs) {
    this.account = account;
    this.slabs = slabs;
  }

  int count() {
    return count;
  }

  long bytes() {
    return slots == null ? 0 : bytes(slots.length);
  }

  private static long bytes(int length) {
    return length * 8L + OVERHEAD_BYTES;
  }

  int find(int hash, ByteSpan key) {
    return find(hash, key.base, key.offset, key.length);
  }

  int find(int hash, Object base, long offset, int length) {
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
        if (Entry.keyLength(slab, at) == length
            && Bytes.equal(slab, Entry.keyAt(at), base, offset, length)) {
          return address;
        }
      }
    }
  }

  /** See {@link EntryMap#touch}. */
  int touch(int[] hashes, int[] addresses, int keyCount) {
    long[] table = slots;
    if (table == null) {
      return 0;
    }
    int m = mask;
    for (int i = 0; i < keyCount; i++) {
      int hash = hashes[i];
      int at = hash & m;
      long slot = table[at];
      while (slot != 0 && (int) (slot >>> 32) != hash) {
        at = (at + 1) & m;
        slot = table[at];
      }
      addresses[i] = (int) slot;
    }
    int sum = 0;
    for (int i = 0; i < keyCount; i++) {
      int address = addresses[i];
      if (address != 0) {
        sum += Entry.keyLength(slabs.array(address), Slabs.at(address));
      }
    }
    return sum;
  }

  /**
   * Memory that one more entry needs: the grown table, beside which the old one is freed later.
   * {@code Long.MAX_VALUE}: no array is that long.
   */
  long bytesToAdd() {
    int length = count < limit ? 0 : grownLength();
    return length == 0 ? 0 : length < 0 ? Long.MAX_VALUE : bytes(length);
  }

  private int grownLength() {
    return slots == null ? MIN_SLOTS : slots.length * 2;
  }

  /** Makes space for one more entry. REQUIRES: {@link #bytesToAdd} are reserved. */
  void makeSpace() {
    if (count == limit) {
      resize(grownLength());
    }
  }

  /**
   * Adds an entry whose key is not in the table. Allocates nothing. REQUIRES: {@link #makeSpace}.
   */
  void add(int hash, int address) {
    int i = hash & mask;
    while (slots[i] != 0) {
      i = (i + 1) & mask;
    }
    slots[i] = slot(hash, address);
    count++;
  }

  /**
   * Gives an empty table its size for a number of entries, if several times that memory is free:
   * fewer may come.
   */
  void expect(int entries) {
    int length = MIN_SLOTS;
    while (length / 4 * 3 < entries) {
      length *= 2;
    }
    MemoryPool pool = account.pool();
    boolean isFree =
        bytes(length) <= (pool.limitBytes() - pool.accountedBytes()) / EXPECTED_FREE_FACTOR;
    if (slots == null && isFree && account.tryReserve(bytes(length))) {
      resize(length);
    }
  }

  /** Shrinks a table that has lost most of its entries, if memory for a copy is free. */
  void shrink() {
    if (count == 0) {
      clear();
      return;
    }
    int length = slots.length;
    while (length > MIN_SLOTS && count * 4L < length) {
      length /= 2;
    }
    if (length * 4L <= slots.length && account.tryReserve(bytes(length))) {
      resize(length);
    }
  }

  private void resize(int length) {
    // First: if it fails, no byte of it may stay accounted.
    long[] table = new long[length];
    account.use(bytes(length));
    long[] before = slots;
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
      account.release(bytes(before.length));
    }
    slots = table;
    mask = m;
    limit = length / 4 * 3;
  }

  private static long slot(int hash, int address) {
    return (long) hash << 32 | address & 0xffffffffL;
  }

  /** Lets an entry's slot point to its new address. */
  void move(int hash, int from, int to) {
    slots[indexOf(hash, from)] = slot(hash, to);
  }

  void remove(int hash, int address) {
    int hole = indexOf(hash, address);
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
  }

  private int indexOf(int hash, int address) {
    long wanted = slot(hash, address);
    int i = hash & mask;
    while (slots[i] != wanted) {
      if (slots[i] == 0) {
        throw new IllegalStateException("[CAIRN_INTERNAL] the table of a family lost an entry");
      }
      i = (i + 1) & mask;
    }
    return i;
  }

  void clear() {
    account.release(bytes());
    slots = null;
    mask = 0;
    count = 0;
    limit = 0;
  }
}
