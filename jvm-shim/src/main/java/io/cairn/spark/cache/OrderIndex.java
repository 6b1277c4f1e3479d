package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;
import java.util.Arrays;

/**
 * Addresses of entries in ascending unsigned order of their keys: a list of sorted chunks.
 *
 * <p>A position is {@code chunk << 32 | slot}; it is good until {@link #changes} moves on.
 */
final class OrderIndex {
  static final long END = -1;

  private static final int CHUNK = 512;
  private static final int FIRST = 16;
  private static final int OVERHEAD_BYTES = 24;

  private final MemoryAccount room;
  private final Slabs slabs;
  private int[][] chunks = new int[1][];
  private int[] sizes = new int[1];
  private int count;
  private long bytes;
  private int changes;
  private boolean closed;

  OrderIndex(MemoryAccount room, Slabs slabs) {
    this.room = room;
    this.slabs = slabs;
  }

  int changes() {
    return changes;
  }

  long bytes() {
    return bytes;
  }

  /** Adds an entry whose key is not there. False: no room. */
  boolean add(int address) {
    byte[] slab = slabs.array(address);
    long at = Slabs.at(address);
    while (true) {
      int chunk = chunkFor(slab, Entry.key(at), Entry.keyLength(slab, at));
      if (count > 0 && sizes[chunk] < chunks[chunk].length) {
        int slot = slotFor(chunk, slab, Entry.key(at), Entry.keyLength(slab, at));
        int[] addresses = chunks[chunk];
        System.arraycopy(addresses, slot, addresses, slot + 1, sizes[chunk] - slot);
        addresses[slot] = address;
        sizes[chunk]++;
        changes++;
        return true;
      }
      int before = changes;
      boolean split = count > 0 && chunks[chunk].length == CHUNK;
      int grown = count == 0 ? FIRST : split ? CHUNK : chunks[chunk].length * 2;
      long extra = count == 0 || split ? grown * 4L + OVERHEAD_BYTES : grown * 2L;
      if (!room.take(extra)) {
        return false;
      }
      if (closed || changes != before) {
        room.give(extra);
        if (closed) {
          return true;
        }
        continue;
      }
      bytes += extra;
      if (split) {
        split(chunk);
      } else if (count == 0) {
        chunks[0] = new int[grown];
        count = 1;
      } else {
        chunks[chunk] = Arrays.copyOf(chunks[chunk], grown);
      }
      changes++;
    }
  }

  private void split(int chunk) {
    if (count == chunks.length) {
      chunks = Arrays.copyOf(chunks, count * 2);
      sizes = Arrays.copyOf(sizes, count * 2);
    }
    System.arraycopy(chunks, chunk + 1, chunks, chunk + 2, count - chunk - 1);
    System.arraycopy(sizes, chunk + 1, sizes, chunk + 2, count - chunk - 1);
    int[] upper = new int[CHUNK];
    // Keys that arrive in order leave full chunks behind them.
    int keep = chunk == count - 1 ? CHUNK - 1 : CHUNK / 2;
    System.arraycopy(chunks[chunk], keep, upper, 0, CHUNK - keep);
    chunks[chunk + 1] = upper;
    sizes[chunk + 1] = CHUNK - keep;
    sizes[chunk] = keep;
    count++;
  }

  /** Lets the key of entry {@code to}, which is there under another address, have that address. */
  void move(int to) {
    byte[] slab = slabs.array(to);
    long at = Slabs.at(to);
    int chunk = chunkFor(slab, Entry.key(at), Entry.keyLength(slab, at));
    int slot = slotFor(chunk, slab, Entry.key(at), Entry.keyLength(slab, at));
    if (count == 0 || slot == sizes[chunk]) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the order of a family lost one of its keys");
    }
    chunks[chunk][slot] = to;
    changes++;
  }

  void remove(int address) {
    byte[] slab = slabs.array(address);
    long at = Slabs.at(address);
    int chunk = chunkFor(slab, Entry.key(at), Entry.keyLength(slab, at));
    int slot = slotFor(chunk, slab, Entry.key(at), Entry.keyLength(slab, at));
    if (count == 0 || slot == sizes[chunk] || chunks[chunk][slot] != address) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the order of a family lost one of its keys");
    }
    changes++;
    sizes[chunk]--;
    System.arraycopy(chunks[chunk], slot + 1, chunks[chunk], slot, sizes[chunk] - slot);
    if (sizes[chunk] == 0) {
      long freed = chunks[chunk].length * 4L + OVERHEAD_BYTES;
      count--;
      System.arraycopy(chunks, chunk + 1, chunks, chunk, count - chunk);
      System.arraycopy(sizes, chunk + 1, sizes, chunk, count - chunk);
      chunks[count] = null;
      sizes[count] = 0;
      bytes -= freed;
      room.give(freed);
    }
  }

  /** Position of the first key at or after (not inclusive: after) the given one. */
  long seek(Object key, long offset, int length, boolean inclusive) {
    if (count == 0) {
      return END;
    }
    int chunk = chunkFor(key, offset, length);
    int slot = slotFor(chunk, key, offset, length);
    if (!inclusive
        && slot < sizes[chunk]
        && compare(chunks[chunk][slot], key, offset, length) == 0) {
      slot++;
    }
    return position(chunk, slot);
  }

  long first() {
    return count == 0 ? END : 0;
  }

  long next(long position) {
    return position((int) (position >>> 32), (int) position + 1);
  }

  int address(long position) {
    return chunks[(int) (position >>> 32)][(int) position];
  }

  private long position(int chunk, int slot) {
    if (slot < sizes[chunk]) {
      return (long) chunk << 32 | slot;
    }
    return chunk + 1 < count ? (long) (chunk + 1) << 32 : END;
  }

  /** The chunk whose keys surround the given one: the last that starts at or before it. */
  private int chunkFor(Object key, long offset, int length) {
    int low = 0;
    int high = count - 1;
    while (low < high) {
      int middle = (low + high + 1) >>> 1;
      if (compare(chunks[middle][0], key, offset, length) <= 0) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  /** First slot in the chunk whose key is not below the given one. */
  private int slotFor(int chunk, Object key, long offset, int length) {
    int low = 0;
    int high = sizes[chunk];
    if (high > 0 && compare(chunks[chunk][high - 1], key, offset, length) < 0) {
      return high;
    }
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (compare(chunks[chunk][middle], key, offset, length) < 0) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  private int compare(int address, Object key, long offset, int length) {
    byte[] slab = slabs.array(address);
    long at = Slabs.at(address);
    return Bytes.compare(slab, Entry.key(at), Entry.keyLength(slab, at), key, offset, length);
  }

  /** Gives its bytes back. Cursors see that it is closed. */
  void close() {
    if (!closed) {
      closed = true;
      changes++;
      room.give(bytes);
      bytes = 0;
    }
  }
}
