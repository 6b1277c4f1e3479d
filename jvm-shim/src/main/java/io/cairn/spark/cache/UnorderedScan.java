package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.WriteBlock;

/**
 * All rows of a family: first the writes, in the order of their storage, where the version that the
 * scan sees stays; then the rows below of other keys, from the cache if it has all keys or can be
 * refilled, or else in pages from the engine.
 */
final class UnorderedScan extends Scan {
  private static final int PREFETCH_KEYS = 256;

  private final EntryCursor written;

  /** Goes ahead of {@link #written}, to the appends whose rows below were requested. */
  private final EntryCursor appends;

  private boolean isInWrites;
  private int prefetchedAppends;

  /** Null: the rows below come in pages. */
  private EntryCursor cached;

  private final ByteSpan writtenKey = new ByteSpan();
  private final ByteSpan appended = new ByteSpan();

  UnorderedScan(WriteBuffer buffer, CommittedCache committed, CachedFamily family) {
    super(buffer, committed, family, null, null, MAX_PAGE_ROWS, MAX_PAGE_BYTES);
    isInWrites = writes != null;
    written = isInWrites ? writes.cursor(false) : null;
    appends = isInWrites && family.isMulti ? writes.cursor(false) : null;
    useCacheIfComplete();
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
    if (isInWrites) {
      if (nextWrite()) {
        return true;
      }
      isInWrites = false;
    }
    if (page == null && cached == null) {
      committed.refills.runForScan(family);
      useCacheIfComplete();
    }
    if (cached != null ? nextCached() : nextInPages()) {
      return true;
    }
    close();
    return false;
  }

  private boolean nextWrite() {
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
      committed.keys.prefetch(family, null, keys, count);
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
      boolean isWritten = writes != null && seenOf(writes.find(Bytes.hash(key), key)) != 0;
      passBelow(!isWritten);
      setLast(key);
      if (!isWritten) {
        return true;
      }
    }
    return false;
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
