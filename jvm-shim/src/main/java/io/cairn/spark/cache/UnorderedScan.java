package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;
import io.cairn.spark.protocol.WriteBlock;

/**
 * All rows of a family: the writes that existed when the scan opened, and the committed rows of
 * other keys, from the cache if it has all keys or can be refilled, or else in pages from the
 * engine.
 *
 * <p>From the cache, the rows are in the order of their storage, the writes first. They are read
 * slab by slab. A write that has moved since is found through its old copy, so none is missed or
 * met twice.
 *
 * <p>Pages are in the order of their keys. The writes are merged with them, if they fit into one
 * window; if not, they come first, each window in order. Spark's joins scan the lengths of all
 * lists, and read each list's elements in another store, best in the order of their keys.
 */
final class UnorderedScan extends RowCursor {
  private static final int PAGE_ROWS = 16_384;
  private static final int PAGE_BYTES = 1 << 20;
  private static final int PREFETCH_KEYS = 256;

  private final WriteBuffer buffer;
  private final CommittedCache committed;
  private final CachedFamily family;
  private boolean isCached;

  /** The writes that the scan reads: those below the limits, one per slab. Null: there are none. */
  private final WriteBuffer.Writes writes;

  private final int[] limits;
  private final int epoch;

  /** Null: the writes come in the order of their storage. */
  private final WriteWindow window;

  /** The window has all writes that are left, and they come between the rows of the pages. */
  private boolean isMerging;

  private boolean hasBegun;
  private boolean isInWrites;
  private boolean isClosed;
  private int slabNumber;
  private byte[] slab;
  private long at;
  private long end;
  private int prefetchedAppends;
  private RowPage page;
  private int row;
  private final ByteSpan rowKey = new ByteSpan();
  private final ByteSpan writtenKey = new ByteSpan();

  UnorderedScan(WriteBuffer buffer, CommittedCache committed, CachedFamily family) {
    this.buffer = buffer;
    this.committed = committed;
    this.family = family;
    WriteBuffer.Writes current = buffer.writes(family.id);
    writes = current == null || current.count() == 0 ? null : current;
    epoch = writes == null ? 0 : writes.openScan();
    limits = writes == null ? null : writes.slabs.usedNow();
    isInWrites = writes != null;
    useCacheIfComplete();
    boolean isSorted = isInWrites && !isCached && !family.isMulti;
    window = isSorted ? new WriteWindow(writes.slabs) : null;
  }

  private void useCacheIfComplete() {
    isCached = family.knowsAbsentKeys();
    if (isCached) {
      family.openScans++;
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
      leaveWrites();
    }
    if (isCached ? isMerging && nextMerged(null) || nextCached() : nextInPages()) {
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
    }
    if (isMerging) {
      leaveWrites();
    }
  }

  private void leaveWrites() {
    isInWrites = false;
    slabNumber = 0;
    slab = null;
  }

  private boolean nextWrite() {
    if (window != null) {
      return nextInOrder();
    }
    while (moveToWrite()) {
      long visitedAt = at;
      at += Entry.size(slab, visitedAt);
      if (setWrite(slab, visitedAt)) {
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
    while (!window.isFull() && moveToWrite()) {
      window.add(Slabs.address(slabNumber, at));
      at += Entry.size(slab, at);
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

  /** Moves to the next place of a write, if this one was passed. False: there is none. */
  private boolean moveToWrite() {
    while (slab == null || at >= end) {
      if (++slabNumber >= limits.length) {
        return false;
      }
      slab = writes.slabs.slab(slabNumber);
      at = Bytes.ARRAY;
      end = at + limits[slabNumber];
    }
    return true;
  }

  /** Sets key and value to a write's newest copy. False: it is not a row, or comes later. */
  private boolean setWrite(byte[] visited, long visitedAt) {
    byte[] entry = visited;
    long entryAt = visitedAt;
    while (Entry.state(entry, entryAt) == Entry.MOVED) {
      int moved = Entry.valueLength(entry, entryAt);
      if (isBelowLimit(moved)) {
        return false;
      }
      entry = writes.slab(moved);
      entryAt = Slabs.at(moved);
    }
    Entry.key(entry, entryAt, key);
    byte state = Entry.state(entry, entryAt);
    if (state == WriteBlock.PUT) {
      Entry.value(entry, entryAt, value);
      return true;
    }
    return state == WriteBlock.APPEND && setAppended(entry, entryAt, visitedAt);
  }

  private boolean isBelowLimit(int address) {
    int number = Slabs.slabOf(address);
    return number < limits.length && Slabs.at(address) < Bytes.ARRAY + limits[number];
  }

  private boolean setAppended(byte[] entry, long entryAt, long visitedAt) {
    if (prefetchedAppends == 0) {
      prefetchAppends(visitedAt);
    }
    prefetchedAppends--;
    if (writes.isSpilled()) {
      // The engine's list includes the append.
      return buffer.get(family, key, value);
    }
    buffer.getAppended(family, entry, entryAt, value);
    return true;
  }

  /** Requests the committed lists of the next appends in bulk. */
  private void prefetchAppends(long from) {
    byte[][] keys = new byte[PREFETCH_KEYS][];
    ByteSpan appended = new ByteSpan();
    int count = 0;
    byte[] array = slab;
    long position = from;
    for (int number = slabNumber; count < PREFETCH_KEYS && number < limits.length; ) {
      if (array == null || position >= Bytes.ARRAY + limits[number]) {
        array = ++number < limits.length ? writes.slabs.slab(number) : null;
        position = Bytes.ARRAY;
        continue;
      }
      // The old copy of an append that has moved has the same key.
      byte state = Entry.state(array, position);
      if (state == WriteBlock.APPEND || state == Entry.MOVED) {
        Entry.key(array, position, appended);
        keys[count++] = appended.toArray();
      }
      position += Entry.size(array, position);
    }
    committed.prefetch(family, buffer.writes(family.id), keys, count);
    prefetchedAppends = Math.max(1, count);
  }

  /** Whether the write at an address (0: none) is one of those that the scan has read. */
  private boolean wasWritten(int address) {
    return address != 0 && Entry.epoch(writes.slab(address), Slabs.at(address)) < epoch;
  }

  private boolean nextCached() {
    Slabs slabs = family.slabs;
    while (true) {
      if (slab == null || at >= end) {
        if (++slabNumber >= slabs.end()) {
          return false;
        }
        slab = slabs.slab(slabNumber);
        at = Bytes.ARRAY;
        end = slab == null ? at : at + slabs.used(slabNumber);
        continue;
      }
      byte[] array = slab;
      long here = at;
      int length = Entry.keyLength(array, here);
      at += Entry.size(length, Entry.capacity(array, here));
      if (Entry.state(array, here) != WriteBlock.PUT) {
        continue;
      }
      if (writes == null || !wasWritten(writes.findSameKey(array, here))) {
        Entry.key(array, here, key);
        Entry.value(array, here, value);
        return true;
      }
    }
  }

  private boolean nextInPages() {
    if (page == null) {
      committed.refillForScan(family);
      useCacheIfComplete();
      if (isCached) {
        return isMerging && nextMerged(null) || nextCached();
      }
    }
    while (true) {
      if (page == null || row == page.count) {
        if (page != null && !page.more) {
          return isMerging && nextMerged(null);
        }
        byte[] from = page == null ? null : page.keyBytes(page.count - 1);
        ScanRequest request =
            new ScanRequest(family.id, from, from == null, null, PAGE_ROWS, PAGE_BYTES);
        page = committed.pages.read(request);
        committed.notePaid(page);
        row = 0;
        continue;
      }
      if (isMerging) {
        page.key(row, rowKey);
        if (nextMerged(rowKey)) {
          return true;
        }
      }
      page.key(row, key);
      page.value(row, value);
      boolean isCommitted = page.origin[row++] == RowPage.COMMITTED;
      if (writes == null || !wasWritten(writes.find(Bytes.hash(key), key))) {
        if (isCommitted) {
          buffer.scanned.note(family, key);
        }
        return true;
      }
    }
  }

  @Override
  public void close() {
    if (isClosed) {
      return;
    }
    isClosed = true;
    page = null;
    slab = null;
    // A finished session may be folded in another thread, which ends all scans.
    if (buffer.takesWrites()) {
      buffer.scanned.forget();
      if (writes != null) {
        buffer.closeScan(writes);
      }
      if (isCached) {
        family.openScans--;
      }
    }
  }
}
