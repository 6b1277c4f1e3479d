package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.WriteBlock;

/**
 * All rows of a family: the writes, and the rows below of other keys, from the cache if it has all
 * keys or can be refilled, or else in pages from the engine.
 *
 * <p>From the cache, the rows are in the order of their storage, the writes first. They are read
 * slab by slab: the version of a write that the scan sees stays where it is.
 *
 * <p>Pages are in the order of their keys. The writes are merged with them, if they fit into one
 * window; if not, they come first, each window in order. Spark's joins scan the lengths of all
 * lists, and read each list's elements in another store, best in the order of their keys.
 */
final class UnorderedScan extends Scan {
  private static final int PREFETCH_KEYS = 256;

  private final EntryCursor written;

  /** Goes ahead of {@link #written}, to the appends whose rows below were requested. */
  private final EntryCursor appends;

  /** Null: the writes come in the order of their storage. */
  private final WriteWindow window;

  /** The window has all writes that are left, and they come between the rows of the pages. */
  private boolean isMerging;

  private boolean hasBegun;
  private boolean isInWrites;
  private int prefetchedAppends;

  /** Null: the rows below come in pages. */
  private EntryCursor cached;

  private final ByteSpan rowKey = new ByteSpan();
  private final ByteSpan writtenKey = new ByteSpan();
  private final ByteSpan appended = new ByteSpan();

  UnorderedScan(WriteBuffer buffer, CommittedCache committed, CachedFamily family) {
    super(buffer, committed, family, null, null, MAX_PAGE_ROWS, MAX_PAGE_BYTES);
    isInWrites = writes != null;
    written = isInWrites ? writes.cursor(false) : null;
    appends = isInWrites && family.isMulti ? writes.cursor(false) : null;
    useCacheIfComplete();
    boolean isSorted = isInWrites && cached == null && !family.isMulti;
    window = isSorted ? new WriteWindow(writes.slabs) : null;
  }

  private void useCacheIfComplete() {
    if (family.knowsAbsentKeys()) {
      cached = family.cursor(false);
      hold.holdSlabs(family);
    }
  }

  @Override
  public boolean next() {
    if (isClosed) {
      return false;
    }
    buffer.beginCall();
    if (!hasBegun) {
      begin();
    }
    if (isInWrites) {
      if (nextWrite()) {
        return true;
      }
      isInWrites = false;
    }
    if (page == null && cached == null) {
      committed.refillForScan(family);
      useCacheIfComplete();
    }
    if (cached != null ? isMerging && nextMerged(null) || nextCached() : nextInPages()) {
      return true;
    }
    close();
    return false;
  }

  private void begin() {
    hasBegun = true;
    if (window != null) {
      fillWindow();
      isMerging = !window.isFull();
      isInWrites = !isMerging;
    }
  }

  private boolean nextWrite() {
    if (window != null) {
      return nextInOrder();
    }
    while (nextSeen(written)) {
      if (setWrite(written.slab, written.at)) {
        return true;
      }
    }
    return false;
  }

  /** Moves to the next write that the scan sees. */
  private boolean nextSeen(EntryCursor entries) {
    while (entries.nextVersion()) {
      if (sees(entries.slab, entries.at)) {
        return true;
      }
    }
    return false;
  }

  private boolean nextInOrder() {
    while (true) {
      int address = window.take();
      if (address != 0) {
        if (setWrite(writes.slab(address), Slabs.at(address))) {
          return true;
        }
        continue;
      }
      fillWindow();
      if (window.isEmpty()) {
        return false;
      }
    }
  }

  /** Adds the next writes to the window. */
  private void fillWindow() {
    while (!window.isFull() && nextSeen(written)) {
      window.add(written.address());
    }
    if (!window.isEmpty()) {
      window.sort();
    }
  }

  /** Sets key and value to the next write, if its key is not behind this one; null: to any. */
  private boolean nextMerged(ByteSpan through) {
    int address;
    while ((address = window.peek()) != 0) {
      byte[] array = writes.slab(address);
      long here = Slabs.at(address);
      Entry.key(array, here, writtenKey);
      if (through != null && Bytes.compare(writtenKey, through) > 0) {
        return false;
      }
      window.take();
      if (setWrite(array, here)) {
        return true;
      }
    }
    return false;
  }

  /** Sets key and value to a write. False: it is no row. */
  private boolean setWrite(byte[] slab, long at) {
    Entry.key(slab, at, key);
    byte op = Entry.op(slab, at);
    if (op == WriteBlock.PUT) {
      Entry.value(slab, at, value);
    } else if (op == WriteBlock.APPEND) {
      setAppended(slab, at);
    }
    return op != WriteBlock.DELETE;
  }

  private void setAppended(byte[] slab, long at) {
    if (cached == null && prefetchedAppends-- == 0) {
      prefetchAppends();
    }
    Entry.value(slab, at, appended);
    if (!buffer.isWhole(family, slab, at) && findBelow()) {
      value.set(Bytes.join(value, appended));
    } else {
      value.set(appended);
    }
  }

  /** Finds the row below the write of the present key. False: there is none. */
  private boolean findBelow() {
    int hash = Bytes.hash(key);
    if (cached != null) {
      // Also if a spill has hidden it from reads.
      int address = family.find(hash, key);
      if (address != 0) {
        Entry.value(family.slab(address), Slabs.at(address), value);
      }
      return address != 0 && Entry.state(family.slab(address), Slabs.at(address)) == WriteBlock.PUT;
    }
    byte[] name = hidden.isEmpty() ? null : key.toArray();
    if (name == null || !hidden.containsKey(name)) {
      return committed.get(family, hash, key, value);
    }
    byte[] below = hidden.get(name);
    if (below != null) {
      value.set(below);
    }
    return below != null;
  }

  /** Requests the rows below the next appends in bulk. */
  private void prefetchAppends() {
    byte[][] keys = new byte[PREFETCH_KEYS][];
    int count = 0;
    while (count < PREFETCH_KEYS && nextSeen(appends)) {
      if (Entry.op(appends.slab, appends.at) == WriteBlock.APPEND) {
        Entry.key(appends.slab, appends.at, writtenKey);
        keys[count++] = writtenKey.toArray();
      }
    }
    prefetchedAppends = count - 1;
    // After a spill they are here, and reads find newer ones.
    if (hidden.isEmpty()) {
      committed.prefetch(family, null, keys, count);
    }
  }

  private boolean nextCached() {
    while (cached.next()) {
      byte[] slab = cached.slab;
      long at = cached.at;
      if (Entry.state(slab, at) == WriteBlock.PUT
          && (writes == null || seenOf(writes.findSameKey(slab, at)) == 0)) {
        Entry.key(slab, at, key);
        Entry.value(slab, at, value);
        return true;
      }
    }
    return false;
  }

  private boolean nextInPages() {
    while (seekBelow()) {
      rowKey.set(key);
      if (isMerging && nextMerged(rowKey)) {
        return true;
      }
      key.set(rowKey);
      boolean isWritten = writes != null && seenOf(writes.find(Bytes.hash(key), key)) != 0;
      passBelow(!isWritten);
      setLast(key);
      if (!isWritten) {
        return true;
      }
    }
    return isMerging && nextMerged(null);
  }

  @Override
  public void beforeSpill() {
    if (cached == null) {
      super.beforeSpill();
    }
  }

  @Override
  boolean hidesBelow(int seen) {
    return super.hidesBelow(seen) || !isInWrites || written.hasPassed(seen);
  }
}
