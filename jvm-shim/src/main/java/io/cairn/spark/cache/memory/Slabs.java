package io.cairn.spark.cache.memory;

import io.cairn.spark.bytes.Bytes;
import java.util.Arrays;

/**
 * Byte arrays with entries one after the other.
 *
 * <p>An entry's address is {@code slab << 15 | unit of 8 bytes}; 0 is no address. Slabs start small
 * and grow to 256 KiB; a large entry has a slab of its own. An array is never reused: a region of
 * it stays readable, even after its slab was freed.
 */
public final class Slabs {
  public static final int MAX_BYTES = 1 << 18;
  static final int MIN_BYTES = 1 << 11;

  /** A larger entry has a slab of its own. */
  public static final int LARGE_BYTES = 1 << 16;

  private static final int UNIT_BITS = 15;
  private static final int UNIT_MASK = (1 << UNIT_BITS) - 1;
  private static final int MAX_SLABS = 1 << (32 - UNIT_BITS);
  private static final int OVERHEAD_BYTES = 64;
  private static final byte[][] NO_ARRAYS = {};
  private static final int[] NO_SIZES = {};
  private static final long[] NO_VERSIONS = {};

  private final MemoryAccount account;
  private byte[][] arrays = NO_ARRAYS;
  private int[] used = NO_SIZES;
  private int[] live = NO_SIZES;
  private long[] version = NO_VERSIONS;
  private int end = 1;
  private int holes;

  /** No free number is lower. */
  private int lowestHole = 1;

  /** The slab for the next small entries, 0 if there is none, and its free bytes. */
  private int current;

  private int currentFree;
  private long bytes;
  private long usedBytes;
  private long liveBytes;

  Slabs(MemoryAccount account) {
    this.account = account;
  }

  public static long at(int address) {
    return Bytes.ARRAY + ((long) (address & UNIT_MASK) << 3);
  }

  public static int slabOf(int address) {
    return address >>> UNIT_BITS;
  }

  public static int address(int slab, long at) {
    return slab << UNIT_BITS | (int) ((at - Bytes.ARRAY) >>> 3);
  }

  public byte[] array(int address) {
    return arrays[address >>> UNIT_BITS];
  }

  /** Memory that an entry needs: normally 0, because the current slab has space. */
  public long bytesToAllocate(long size) {
    if (size <= currentFree && size <= LARGE_BYTES) {
      return 0;
    }
    if (size > Integer.MAX_VALUE - OVERHEAD_BYTES || holes == 0 && end == MAX_SLABS) {
      return Long.MAX_VALUE;
    }
    return OVERHEAD_BYTES + (size > LARGE_BYTES ? size : nextSlabBytes(size));
  }

  private int nextSlabBytes(long size) {
    int next =
        (int) Math.min(MAX_BYTES, Math.max(MIN_BYTES, Long.highestOneBit(Math.max(1, bytes))));
    while (next < size) {
      next <<= 1;
    }
    return next;
  }

  /**
   * Allocates an entry, which counts as live until {@link #kill}. REQUIRES: {@link
   * #bytesToAllocate} are reserved.
   */
  int allocate(int size) {
    int slab = current;
    if (size > LARGE_BYTES) {
      slab = add(size);
    } else {
      if (size > currentFree) {
        slab = add(nextSlabBytes(size));
        current = slab;
        currentFree = arrays[slab].length;
      }
      currentFree -= size;
    }
    int address = slab << UNIT_BITS | used[slab] >>> 3;
    used[slab] += size;
    live[slab] += size;
    usedBytes += size;
    liveBytes += size;
    return address;
  }

  private int add(int length) {
    // First: if it fails, no byte of it may stay accounted.
    byte[] array = new byte[length];
    makeSpace();
    long accounted = (long) length + OVERHEAD_BYTES;
    account.use(accounted);
    int slab = end;
    if (holes > 0) {
      slab = lowestHole;
      while (arrays[slab] != null) {
        slab++;
      }
      lowestHole = slab + 1;
      holes--;
    } else {
      end++;
    }
    arrays[slab] = array;
    used[slab] = 0;
    live[slab] = 0;
    version[slab] = 0;
    bytes += accounted;
    return slab;
  }

  /** Makes space for the number of one more slab. */
  private void makeSpace() {
    if (holes == 0 && end >= arrays.length) {
      int capacity = Math.max(4, end * 2);
      used = Arrays.copyOf(used, capacity);
      live = Arrays.copyOf(live, capacity);
      version = Arrays.copyOf(version, capacity);
      arrays = Arrays.copyOf(arrays, capacity);
    }
  }

  /** Marks an entry as dead; frees its slab if it is full and has no other live entry. */
  void kill(int address, int size) {
    int slab = address >>> UNIT_BITS;
    live[slab] -= size;
    liveBytes -= size;
    if (live[slab] == 0 && slab != current) {
      free(slab);
    }
  }

  public void free(int slab) {
    releaseMemory(slab);
    remove(slab);
  }

  /**
   * First step of {@link #free}: returns the memory of a slab, so that entries that move out of it
   * can use it. The array stays reachable until {@link #remove}.
   */
  public void releaseMemory(int slab) {
    int accounted = arrays[slab].length + OVERHEAD_BYTES;
    bytes -= accounted;
    account.release(accounted);
    if (current == slab) {
      current = 0;
      currentFree = 0;
    }
  }

  /** Second step of {@link #free}. */
  public void remove(int slab) {
    usedBytes -= used[slab];
    liveBytes -= live[slab];
    arrays[slab] = null;
    used[slab] = 0;
    live[slab] = 0;
    holes++;
    lowestHole = Math.min(lowestHole, slab);
  }

  /** Frees all slabs. Allocates nothing: it may follow an allocation that failed. */
  void clear() {
    account.release(bytes);
    arrays = NO_ARRAYS;
    used = NO_SIZES;
    live = NO_SIZES;
    version = NO_VERSIONS;
    end = 1;
    holes = 0;
    lowestHole = 1;
    current = 0;
    currentFree = 0;
    bytes = 0;
    usedBytes = 0;
    liveBytes = 0;
  }

  /** Slabs have numbers from 1 to below this; some may be free ({@link #slab} returns null). */
  public int end() {
    return end;
  }

  public byte[] slab(int slab) {
    return slab < arrays.length ? arrays[slab] : null;
  }

  public int used(int slab) {
    return used[slab];
  }

  public int live(int slab) {
    return live[slab];
  }

  public int current() {
    return current;
  }

  /** The newest version that has an entry in the slab. */
  public long version(int slab) {
    return version[slab];
  }

  /** Notes that a slab has an entry of this version. */
  public void noteVersion(int slab, long entryVersion) {
    if (version[slab] < entryVersion) {
      version[slab] = entryVersion;
    }
  }

  public long bytes() {
    return bytes;
  }

  public long deadBytes() {
    return usedBytes - liveBytes;
  }

  public long usedBytes() {
    return usedBytes;
  }

  public long liveBytes() {
    return liveBytes;
  }
}
