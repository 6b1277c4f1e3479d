package io.cairn.spark.cache.memory;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import org.apache.spark.unsafe.Platform;

/**
 * Addresses of entries in ascending unsigned order of their keys, in one array.
 *
 * <p>Beside each address is a word of its key: the four bytes behind those that all keys of the
 * chunk have in common, 0 for bytes behind the end. A search compares words, and reads the keys
 * themselves only where words are equal: each of them is a miss of the processor's caches.
 */
final class OrderChunk {
  private static final int WORD_BYTES = 4;
  private static final long WORD = 0xffffffffL;

  private final Slabs slabs;

  /** {@code word << 32 | address}. */
  private long[] slots;

  private int size;

  /** The first bytes of all keys are the same, at least so many. */
  private int shared;

  OrderChunk(Slabs slabs, int capacity) {
    this.slabs = slabs;
    slots = new long[capacity];
  }

  int size() {
    return size;
  }

  int capacity() {
    return slots.length;
  }

  boolean isFull() {
    return size == slots.length;
  }

  int address(int slot) {
    return (int) slots[slot];
  }

  void resize(int capacity) {
    moveTo(new long[capacity]);
  }

  /** Uses another array for the slots, which has space for all of them. Allocates nothing. */
  void moveTo(long[] empty) {
    System.arraycopy(slots, 0, empty, 0, size);
    slots = empty;
    shareAll();
  }

  /** First slot whose key is not below the given one; {@code after}: whose key is above it. */
  int search(ByteSpan key, boolean after) {
    if (size == 0) {
      return 0;
    }
    int order = compareShared(key);
    if (order != 0) {
      return order < 0 ? 0 : size;
    }
    long word = word(key.base, key.offset, key.length);
    int low = firstNotBelow(word, 0);
    int high = low;
    if (low < size && slots[low] >>> 32 == word) {
      high = word == WORD ? size : firstNotBelow(word + 1, low + 1);
    }
    while (low < high) {
      int middle = (low + high) >>> 1;
      int compared = compareRest((int) slots[middle], key);
      if (compared < 0 || compared == 0 && after) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  private int firstNotBelow(long word, int from) {
    long[] words = slots;
    int low = from;
    int high = size;
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (words[middle] >>> 32 < word) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  /** Compares a key with the shared bytes; 0: it starts with them. */
  private int compareShared(ByteSpan key) {
    if (shared == 0) {
      return 0;
    }
    int address = (int) slots[0];
    byte[] slab = slabs.array(address);
    int length = Math.min(shared, key.length);
    long from = Entry.keyAt(Slabs.at(address));
    int order = Bytes.compare(key.base, key.offset, length, slab, from, length);
    return order == 0 && length < shared ? -1 : order;
  }

  /** Compares the key of an entry with another one that starts with the shared bytes. */
  private int compareRest(int address, ByteSpan key) {
    byte[] slab = slabs.array(address);
    long at = Slabs.at(address);
    return Bytes.compare(
        slab,
        Entry.keyAt(at) + shared,
        Entry.keyLength(slab, at) - shared,
        key.base,
        key.offset + shared,
        key.length - shared);
  }

  boolean hasKey(int slot, ByteSpan key) {
    int address = (int) slots[slot];
    byte[] slab = slabs.array(address);
    long at = Slabs.at(address);
    return Entry.keyLength(slab, at) == key.length
        && Bytes.equal(slab, Entry.keyAt(at), key.base, key.offset, key.length);
  }

  /** Adds an entry at the place of its key. REQUIRES: the chunk is not full. */
  void insert(int slot, int address, ByteSpan key) {
    share(key);
    System.arraycopy(slots, slot, slots, slot + 1, size - slot);
    slots[slot] = word(key.base, key.offset, key.length) << 32 | address & WORD;
    size++;
  }

  /** Replaces an entry by another one, whose key has the same place. */
  void replace(int slot, int address, ByteSpan key) {
    share(key);
    slots[slot] = word(key.base, key.offset, key.length) << 32 | address & WORD;
  }

  void remove(int slot) {
    System.arraycopy(slots, slot + 1, slots, slot, size - slot - 1);
    size--;
  }

  /** Moves the entries from a slot on to an empty chunk. Allocates nothing. */
  void split(int from, OrderChunk upper) {
    System.arraycopy(slots, from, upper.slots, 0, size - from);
    upper.size = size - from;
    upper.shared = shared;
    size = from;
    shareAll();
    upper.shareAll();
  }

  /** Appends all entries of the chunk that follows. REQUIRES: they fit. */
  void append(OrderChunk next) {
    System.arraycopy(next.slots, 0, slots, size, next.size);
    size += next.size;
    setShared(commonOfAll());
  }

  private void share(ByteSpan key) {
    if (size == 0) {
      shared = key.length;
    } else if (compareShared(key) != 0) {
      setShared(common((int) slots[0], key.base, key.offset, Math.min(shared, key.length)));
    }
  }

  /** Finds the shared bytes anew, of which there may be more now. */
  private void shareAll() {
    int common = commonOfAll();
    if (common != shared) {
      setShared(common);
    }
  }

  /** The number of first bytes that all keys share: those of the first and the last one. */
  private int commonOfAll() {
    if (size == 0) {
      return 0;
    }
    int last = (int) slots[size - 1];
    byte[] slab = slabs.array(last);
    long at = Slabs.at(last);
    return common((int) slots[0], slab, Entry.keyAt(at), Entry.keyLength(slab, at));
  }

  private void setShared(int length) {
    shared = length;
    for (int slot = 0; slot < size; slot++) {
      int address = (int) slots[slot];
      byte[] slab = slabs.array(address);
      long at = Slabs.at(address);
      long word = word(slab, Entry.keyAt(at), Entry.keyLength(slab, at));
      slots[slot] = word << 32 | address & WORD;
    }
  }

  /** How many of these bytes an entry's key has in common with them, from the first one on. */
  private int common(int address, Object base, long offset, int count) {
    byte[] slab = slabs.array(address);
    long at = Slabs.at(address);
    int length = Math.min(count, Entry.keyLength(slab, at));
    long from = Entry.keyAt(at);
    int i = 0;
    while (i < length && Platform.getByte(slab, from + i) == Platform.getByte(base, offset + i)) {
      i++;
    }
    return i;
  }

  /** The word of a key that starts with the shared bytes, as an unsigned number. */
  private long word(Object base, long offset, int length) {
    int rest = length - shared;
    if (rest >= WORD_BYTES) {
      return Bytes.getBigInt(base, offset + shared) & WORD;
    }
    long word = 0;
    for (int i = 0; i < WORD_BYTES; i++) {
      word = word << 8 | (i < rest ? Platform.getByte(base, offset + shared + i) & 0xff : 0);
    }
    return word;
  }
}
