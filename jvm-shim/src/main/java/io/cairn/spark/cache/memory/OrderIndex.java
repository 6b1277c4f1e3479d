package io.cairn.spark.cache.memory;

import io.cairn.spark.bytes.ByteSpan;
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

  /**
   * Of a chunk beside its slots: two objects, its place in {@link #chunks} and in {@link #heads}.
   */
  private static final int OVERHEAD_BYTES = 72;

  private static final long CHUNK_BYTES = CHUNK * 8L + OVERHEAD_BYTES;

  private final MemoryAccount account;
  private final Slabs slabs;
  private final ByteSpan key = new ByteSpan();
  private final ByteSpan headKey = new ByteSpan();
  private OrderChunk[] chunks = new OrderChunk[1];

  /** The first entry of each chunk. */
  private final OrderChunk heads;

  private int fullCount;
  private int entryCount;
  private long bytes;
  private int changeCount;
  private boolean isPartial;

  OrderIndex(MemoryAccount account, Slabs slabs, boolean isPartial) {
    this.account = account;
    this.slabs = slabs;
    this.isPartial = isPartial;
    heads = new OrderChunk(slabs, 1);
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

  private int count() {
    return heads.size();
  }

  /**
   * Upper bound of the memory that one more entry needs: if there are several chunks, its key
   * decides whether its chunk is full.
   */
  long bytesToAdd() {
    if (fullCount == 0) {
      return count() > 0 ? 0 : FIRST * 8L + OVERHEAD_BYTES;
    }
    return count() > 1 ? CHUNK_BYTES : bytesToGrow(chunks[0].capacity());
  }

  private static long bytesToGrow(int capacity) {
    return capacity == CHUNK ? CHUNK_BYTES : capacity * 8L;
  }

  /**
   * Adds an entry whose key is not in the index. If an allocation fails, nothing has changed.
   * REQUIRES: {@link #bytesToAdd} are reserved.
   */
  void add(int address) {
    setKey(address);
    int number = chunkFor(key);
    if (count() == 0) {
      OrderChunk first = new OrderChunk(slabs, FIRST);
      makeSpace();
      use(FIRST * 8L + OVERHEAD_BYTES);
      insertChunk(0, first, address);
    } else if (chunks[number].isFull()) {
      grow(number);
      number = chunkFor(key);
    }
    OrderChunk chunk = chunks[number];
    int slot = chunk.search(key, false);
    chunk.insert(slot, address, key);
    if (slot == 0) {
      heads.replace(number, address, key);
    }
    if (chunk.isFull()) {
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

  /** REQUIRES: what these bytes are for is allocated already. */
  private void use(long used) {
    account.use(used);
    bytes += used;
  }

  private void grow(int number) {
    OrderChunk chunk = chunks[number];
    int capacity = chunk.capacity();
    if (capacity < CHUNK) {
      long[] slots = new long[capacity * 2];
      use(bytesToGrow(capacity));
      fullCount--;
      chunk.moveTo(slots);
      return;
    }
    OrderChunk upper = new OrderChunk(slabs, CHUNK);
    makeSpace();
    use(bytesToGrow(capacity));
    fullCount--;
    // If keys arrive in order, all chunks but the last stay full.
    int keep = number == count() - 1 ? CHUNK - 1 : CHUNK / 2;
    chunk.split(keep, upper);
    insertChunk(number + 1, upper, upper.address(0));
  }

  /** Makes space for one more chunk. */
  private void makeSpace() {
    int count = count();
    if (count == chunks.length) {
      chunks = Arrays.copyOf(chunks, count * 2);
    }
    if (heads.isFull()) {
      heads.resize(count * 2);
    }
  }

  /** Allocates nothing. REQUIRES: {@link #makeSpace}. */
  private void insertChunk(int number, OrderChunk chunk, int head) {
    System.arraycopy(chunks, number, chunks, number + 1, count() - number);
    chunks[number] = chunk;
    Entry.key(slabs.array(head), Slabs.at(head), headKey);
    heads.insert(number, head, headKey);
    headKey.clear();
  }

  /** Replaces the address of a key by {@code to}, an entry with the same key. */
  void move(int to) {
    setKey(to);
    int number = chunkFor(key);
    int slot = slotOf(number);
    if (slot >= 0) {
      chunks[number].replace(slot, to, key);
      if (slot == 0) {
        heads.replace(number, to, key);
      }
      changeCount++;
    }
  }

  void remove(int address) {
    setKey(address);
    int number = chunkFor(key);
    int slot = slotOf(number);
    if (slot < 0) {
      return;
    }
    OrderChunk chunk = chunks[number];
    changeCount++;
    entryCount--;
    if (chunk.isFull()) {
      fullCount--;
    }
    chunk.remove(slot);
    if (chunk.size() == 0) {
      removeChunk(number);
    } else if (slot == 0) {
      int head = chunk.address(0);
      setKey(head);
      heads.replace(number, head, key);
    }
  }

  private void removeChunk(int number) {
    long freed = chunks[number].capacity() * 8L + OVERHEAD_BYTES;
    heads.remove(number);
    int count = count();
    System.arraycopy(chunks, number + 1, chunks, number, count - number);
    chunks[count] = null;
    bytes -= freed;
    account.release(freed);
  }

  /** Merges neighbours if on average the chunks are less than a quarter full. */
  void compact() {
    int count = count();
    if (count < 2 || entryCount * 4L >= count * (long) CHUNK) {
      return;
    }
    int last = 0;
    for (int number = 1; number < count; number++) {
      if (chunks[last].size() + chunks[number].size() < CHUNK) {
        chunks[last].append(chunks[number]);
        heads.remove(last + 1);
      } else {
        last++;
        chunks[last] = chunks[number];
      }
    }
    long freed = (count - last - 1) * CHUNK_BYTES;
    changeCount++;
    bytes -= freed;
    account.release(freed);
    Arrays.fill(chunks, last + 1, count, null);
    // Last: there may be no memory for smaller arrays.
    chunks = Arrays.copyOf(chunks, last + 1);
    heads.resize(last + 1);
  }

  private void setKey(int address) {
    Entry.key(slabs.array(address), Slabs.at(address), key);
  }

  /** The slot of {@link #key} in the chunk; -1 if a partial index does not have it. */
  private int slotOf(int number) {
    OrderChunk chunk = chunks[number];
    int slot = chunk == null ? 0 : chunk.search(key, false);
    boolean isThere =
        chunk != null && slot < chunk.size() && (!isPartial || chunk.hasKey(slot, key));
    if (!isThere && !isPartial) {
      throw new IllegalStateException("[CAIRN_INTERNAL] the order of a family lost a key");
    }
    return isThere ? slot : -1;
  }

  /** Position of the first key at or after the given one; not inclusive: after it. */
  public long seek(ByteSpan from, boolean inclusive) {
    if (count() == 0) {
      return END;
    }
    int number = chunkFor(from);
    return position(number, chunks[number].search(from, !inclusive));
  }

  public long first() {
    return count() == 0 ? END : 0;
  }

  public long next(long position) {
    return position((int) (position >>> 32), (int) position + 1);
  }

  public int address(long position) {
    return chunks[(int) (position >>> 32)].address((int) position);
  }

  private long position(int number, int slot) {
    if (slot < chunks[number].size()) {
      return (long) number << 32 | slot;
    }
    return number + 1 < count() ? (long) (number + 1) << 32 : END;
  }

  /** The chunk for the given key: the last one that starts at or before it. */
  private int chunkFor(ByteSpan wanted) {
    return Math.max(0, heads.search(wanted, true) - 1);
  }

  /** Frees its memory. REQUIRES: the index is not used afterwards. */
  void close() {
    changeCount++;
    account.release(bytes);
    bytes = 0;
  }
}
