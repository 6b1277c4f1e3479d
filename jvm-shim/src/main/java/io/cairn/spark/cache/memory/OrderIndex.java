package io.cairn.spark.cache.memory;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import java.util.Arrays;

/**
 * Addresses of entries in ascending unsigned order of their keys: a list of sorted chunks.
 *
 * <p>A partial index is not used for reads yet: it lacks entries of its map, which are added later
 * in any order.
 *
 * <p>The first chunk grows up to 512 entries; a full chunk is split. A position is {@code chunk <<
 * 32 | slot}; it is valid until {@link #changeCount} changes.
 */
public final class OrderIndex {
  public static final long END = -1;

  private static final int CHUNK = 512;
  private static final int FIRST = 16;
  private static final int OVERHEAD_BYTES = 24;
  private static final long CHUNK_BYTES = CHUNK * 4L + OVERHEAD_BYTES;

  private final MemoryAccount account;
  private final Slabs slabs;
  private final ByteSpan key = new ByteSpan();
  private int[][] chunks = new int[1][];
  private int[] sizes = new int[1];
  private int count;
  private int fullCount;
  private int entryCount;
  private long bytes;
  private int changeCount;
  private boolean isPartial;

  OrderIndex(MemoryAccount account, Slabs slabs, boolean isPartial) {
    this.account = account;
    this.slabs = slabs;
    this.isPartial = isPartial;
  }

  /** Ends the partial state. REQUIRES: the index has all entries of its map. */
  void becomeWhole() {
    isPartial = false;
  }

  int entryCount() {
    return entryCount;
  }

  public int changeCount() {
    return changeCount;
  }

  long bytes() {
    return bytes;
  }

  /**
   * Upper bound of the memory that one more entry needs: if there are several chunks, its key
   * decides whether its chunk is full.
   */
  long bytesToAdd() {
    if (fullCount == 0) {
      return count > 0 ? 0 : FIRST * 4L + OVERHEAD_BYTES;
    }
    return count > 1 ? CHUNK_BYTES : bytesToGrow(chunks[0].length);
  }

  /**
   * Upper bound of the memory that this number of new entries needs: each present chunk may be
   * full, and a new one is at least half full.
   */
  long bytesToAdd(int more) {
    return CHUNK_BYTES * (2L + Math.min(count, more) + more / (CHUNK / 2));
  }

  private static long bytesToGrow(int length) {
    return length == CHUNK ? CHUNK_BYTES : length * 4L;
  }

  /** Adds an entry whose key is not in the index. REQUIRES: {@link #bytesToAdd} are reserved. */
  void add(int address) {
    setKey(address);
    if (count == 0) {
      use(FIRST * 4L + OVERHEAD_BYTES);
      chunks[0] = new int[FIRST];
      count = 1;
    }
    int chunk = chunkFor(key);
    if (sizes[chunk] == chunks[chunk].length) {
      grow(chunk);
      chunk = chunkFor(key);
    }
    int slot = slotFor(chunk, key);
    int[] addresses = chunks[chunk];
    System.arraycopy(addresses, slot, addresses, slot + 1, sizes[chunk] - slot);
    addresses[slot] = address;
    if (++sizes[chunk] == addresses.length) {
      fullCount++;
    }
    entryCount++;
    changeCount++;
  }

  /** Adds an entry of a partial index unless it is there already. REQUIRES: as {@link #add}. */
  void addIfAbsent(int address) {
    setKey(address);
    if (slotOf(chunkFor(key)) < 0) {
      add(address);
    }
  }

  private void use(long used) {
    account.use(used);
    bytes += used;
  }

  private void grow(int chunk) {
    int length = chunks[chunk].length;
    use(bytesToGrow(length));
    fullCount--;
    if (length < CHUNK) {
      chunks[chunk] = Arrays.copyOf(chunks[chunk], length * 2);
      return;
    }
    if (count == chunks.length) {
      chunks = Arrays.copyOf(chunks, count * 2);
      sizes = Arrays.copyOf(sizes, count * 2);
    }
    System.arraycopy(chunks, chunk + 1, chunks, chunk + 2, count - chunk - 1);
    System.arraycopy(sizes, chunk + 1, sizes, chunk + 2, count - chunk - 1);
    int[] upper = new int[CHUNK];
    // If keys arrive in order, all chunks but the last stay full.
    int keep = chunk == count - 1 ? CHUNK - 1 : CHUNK / 2;
    System.arraycopy(chunks[chunk], keep, upper, 0, CHUNK - keep);
    chunks[chunk + 1] = upper;
    sizes[chunk + 1] = CHUNK - keep;
    sizes[chunk] = keep;
    count++;
  }

  /** Replaces the address of a key by {@code to}, an entry with the same key. */
  void move(int to) {
    setKey(to);
    int chunk = chunkFor(key);
    int slot = slotOf(chunk);
    if (slot >= 0) {
      chunks[chunk][slot] = to;
      changeCount++;
    }
  }

  void remove(int address) {
    setKey(address);
    int chunk = chunkFor(key);
    int slot = slotOf(chunk);
    if (slot < 0) {
      return;
    }
    changeCount++;
    entryCount--;
    if (sizes[chunk] == chunks[chunk].length) {
      fullCount--;
    }
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
      account.release(freed);
    }
  }

  /** Merges neighbours if on average the chunks are less than a quarter full. */
  void compact() {
    if (count < 2 || entryCount * 4L >= count * (long) CHUNK) {
      return;
    }
    int last = 0;
    for (int chunk = 1; chunk < count; chunk++) {
      if (sizes[last] + sizes[chunk] < CHUNK) {
        System.arraycopy(chunks[chunk], 0, chunks[last], sizes[last], sizes[chunk]);
        sizes[last] += sizes[chunk];
      } else {
        last++;
        chunks[last] = chunks[chunk];
        sizes[last] = sizes[chunk];
      }
    }
    long freed = (count - last - 1) * CHUNK_BYTES;
    count = last + 1;
    chunks = Arrays.copyOf(chunks, count);
    sizes = Arrays.copyOf(sizes, count);
    changeCount++;
    bytes -= freed;
    account.release(freed);
  }

  private void setKey(int address) {
    Entry.key(slabs.array(address), Slabs.at(address), key);
  }

  /** The slot of {@link #key} in the chunk; -1 if a partial index does not have it. */
  private int slotOf(int chunk) {
    int slot = slotFor(chunk, key);
    boolean isThere =
        slot < sizes[chunk]
            && (!isPartial || compare(chunks[chunk][slot], key.base, key.offset, key.length) == 0);
    if (!isThere && !isPartial) {
      throw new IllegalStateException("[CAIRN_INTERNAL] the order of a family lost a key");
    }
    return isThere ? slot : -1;
  }

  /** Position of the first key at or after the given one; not inclusive: after it. */
  public long seek(ByteSpan from, boolean inclusive) {
    if (count == 0) {
      return END;
    }
    int chunk = chunkFor(from);
    int slot = slotFor(chunk, from);
    if (!inclusive
        && slot < sizes[chunk]
        && compare(chunks[chunk][slot], from.base, from.offset, from.length) == 0) {
      slot++;
    }
    return position(chunk, slot);
  }

  public long first() {
    return count == 0 ? END : 0;
  }

  public long next(long position) {
    return position((int) (position >>> 32), (int) position + 1);
  }

  public int address(long position) {
    return chunks[(int) (position >>> 32)][(int) position];
  }

  private long position(int chunk, int slot) {
    if (slot < sizes[chunk]) {
      return (long) chunk << 32 | slot;
    }
    return chunk + 1 < count ? (long) (chunk + 1) << 32 : END;
  }

  /** The chunk for the given key: the last one that starts at or before it. */
  private int chunkFor(ByteSpan wanted) {
    Object base = wanted.base;
    long offset = wanted.offset;
    int length = wanted.length;
    int low = 0;
    int high = count - 1;
    while (low < high) {
      int middle = (low + high + 1) >>> 1;
      if (compare(chunks[middle][0], base, offset, length) <= 0) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  /** First slot in the chunk whose key is not below the given one. */
  private int slotFor(int chunk, ByteSpan wanted) {
    Object base = wanted.base;
    long offset = wanted.offset;
    int length = wanted.length;
    int[] addresses = chunks[chunk];
    int low = 0;
    int high = sizes[chunk];
    if (high > 0 && compare(addresses[high - 1], base, offset, length) < 0) {
      return high;
    }
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (compare(addresses[middle], base, offset, length) < 0) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  private int compare(int address, Object base, long offset, int length) {
    byte[] slab = slabs.array(address);
    long at = Slabs.at(address);
    return Bytes.compare(slab, Entry.keyAt(at), Entry.keyLength(slab, at), base, offset, length);
  }

  /** Frees its memory. REQUIRES: the index is not used afterwards. */
  void close() {
    changeCount++;
    account.release(bytes);
    bytes = 0;
  }
}
