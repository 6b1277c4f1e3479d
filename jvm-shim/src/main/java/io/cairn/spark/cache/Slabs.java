package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;
import java.util.Arrays;

/**
 * Byte arrays that hold entries one after the other.
 *
 * <p>An entry's address is {@code slab << 15 | unit of 8 bytes}; 0 is no address. Slabs start small
 * and grow to 256 KiB; a large entry has an array of its own. Arrays are never used twice: a region
 * handed out stays readable, also after its slab was dropped.
 */
final class Slabs {
  static final int MAX_BYTES = 1 << 18;
  static final int MIN_BYTES = 1 << 11;

  private static final int UNIT_BITS = 15;
  private static final int UNIT_MASK = (1 << UNIT_BITS) - 1;
  private static final int MAX_SLABS = 1 << (32 - UNIT_BITS);
  private static final int LARGE_BYTES = 1 << 16;
  private static final int OVERHEAD_BYTES = 64;

  private final MemoryAccount room;
  private byte[][] arrays = new byte[0][];
  private int[] used = new int[0];
  private int[] live = new int[0];
  private long[] version = new long[0];
  private int end = 1;
  private int holes;
  private int current;
  private long bytes;
  private long usedBytes;
  private long liveBytes;

  Slabs(MemoryAccount room) {
    this.room = room;
  }

  static long at(int address) {
    return Bytes.ARRAY + ((long) (address & UNIT_MASK) << 3);
  }

  static int slabOf(int address) {
    return address >>> UNIT_BITS;
  }

  static int address(int slab, long at) {
    return slab << UNIT_BITS | (int) ((at - Bytes.ARRAY) >>> 3);
  }

  byte[] array(int address) {
    return arrays[address >>> UNIT_BITS];
  }

  /**
   * Room for an entry; 0: none, as for one that no array can hold. The entry counts as live until
   * {@link #kill}.
   */
  int allocate(long size) {
    if (size > Integer.MAX_VALUE - 64) {
      return 0;
    }
    int bytesNeeded = (int) size;
    int slab = current;
    if (bytesNeeded > LARGE_BYTES) {
      slab = room.take(bytesNeeded + OVERHEAD_BYTES) ? add(bytesNeeded) : 0;
    } else if (!fits(bytesNeeded)) {
      int next =
          (int) Math.min(MAX_BYTES, Math.max(MIN_BYTES, Long.highestOneBit(Math.max(1, bytes))));
      while (next < bytesNeeded) {
        next <<= 1;
      }
      boolean taken = room.take(next + OVERHEAD_BYTES);
      if (fits(bytesNeeded)) {
        // The eviction that made room has started another slab.
        if (taken) {
          room.give(next + OVERHEAD_BYTES);
        }
        slab = current;
      } else {
        slab = taken ? add(next) : 0;
        current = slab == 0 ? current : slab;
      }
    }
    if (slab == 0) {
      return 0;
    }
    int address = slab << UNIT_BITS | used[slab] >>> 3;
    used[slab] += bytesNeeded;
    live[slab] += bytesNeeded;
    usedBytes += bytesNeeded;
    liveBytes += bytesNeeded;
    return address;
  }

  private boolean fits(int size) {
    return current != 0 && used[current] + size <= arrays[current].length;
  }

  private int add(int length) {
    int slab = end;
    if (holes > 0) {
      slab = 1;
      while (arrays[slab] != null) {
        slab++;
      }
      holes--;
    } else {
      if (end == MAX_SLABS) {
        room.give(length + OVERHEAD_BYTES);
        return 0;
      }
      if (end >= arrays.length) {
        int capacity = Math.max(4, end * 2);
        arrays = Arrays.copyOf(arrays, capacity);
        used = Arrays.copyOf(used, capacity);
        live = Arrays.copyOf(live, capacity);
        version = Arrays.copyOf(version, capacity);
      }
      end++;
    }
    arrays[slab] = new byte[length];
    used[slab] = 0;
    live[slab] = 0;
    version[slab] = 0;
    bytes += length + OVERHEAD_BYTES;
    return slab;
  }

  /** An entry is no longer needed. True: its slab holds nothing else. */
  boolean kill(int address, int size) {
    int slab = address >>> UNIT_BITS;
    live[slab] -= size;
    liveBytes -= size;
    return live[slab] == 0;
  }

  /** Gives a slab's bytes back at once; its array stays reachable until {@link #drop}. */
  void giveBack(int slab) {
    int accounted = arrays[slab].length + OVERHEAD_BYTES;
    bytes -= accounted;
    room.give(accounted);
    if (current == slab) {
      current = 0;
    }
  }

  /** Forgets a slab that was given back. */
  void drop(int slab) {
    usedBytes -= used[slab];
    liveBytes -= live[slab];
    arrays[slab] = null;
    used[slab] = 0;
    live[slab] = 0;
    holes++;
  }

  void free(int slab) {
    giveBack(slab);
    drop(slab);
  }

  void clear() {
    room.give(bytes);
    arrays = new byte[0][];
    used = new int[0];
    live = new int[0];
    version = new long[0];
    end = 1;
    holes = 0;
    current = 0;
    bytes = 0;
    usedBytes = 0;
    liveBytes = 0;
  }

  /** Slabs have numbers from 1 to one below this; some may be gone ({@link #slab} null). */
  int end() {
    return end;
  }

  byte[] slab(int slab) {
    return slab < arrays.length ? arrays[slab] : null;
  }

  /** How far each slab is filled now. */
  int[] usedNow() {
    return Arrays.copyOf(used, end);
  }

  int used(int slab) {
    return used[slab];
  }

  int live(int slab) {
    return live[slab];
  }

  int current() {
    return current;
  }

  long version(int slab) {
    return version[slab];
  }

  /** Notes that an entry of this version lies in the slab. */
  void touch(int slab, long entryVersion) {
    if (version[slab] < entryVersion) {
      version[slab] = entryVersion;
    }
  }

  long bytes() {
    return bytes;
  }

  long deadBytes() {
    return usedBytes - liveBytes;
  }

  long usedBytes() {
    return usedBytes;
  }
}
