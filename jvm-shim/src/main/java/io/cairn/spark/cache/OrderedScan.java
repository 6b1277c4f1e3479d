package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.cache.memory.OrderIndex;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.WriteBlock;

/**
 * A range of an ordered family in key order: the writes merged over the committed rows, from the
 * cache if it has all keys, or else in pages from the engine.
 *
 * <p>The place of the scan is the last key that it passed. After any change (a write, a spill, an
 * eviction), both sides start again from there.
 */
final class OrderedScan extends Scan {
  private static final int FIRST_PAGE_ROWS = 256;
  private static final int FIRST_PAGE_BYTES = 1 << 16;

  /** See {@link #seekSides}; no comparison has this result. */
  private static final int NO_SIDE = Integer.MIN_VALUE;

  private final IndexedReads indexed;
  private final Side written = new Side();
  private final Side cached = new Side();

  /** The committed rows come from the cache at this place, not from a page. */
  private boolean isCached;

  /** A place in one order, which is sought again after the order has changed. */
  private final class Side {
    EntryMap map;
    OrderIndex order;
    int changesSeen;
    long position;

    /** Moves to the first key after the last one that was passed. False: there is none. */
    boolean seek(EntryMap current) {
      OrderIndex currentOrder = current == null ? null : current.order();
      if (currentOrder == null) {
        order = null;
        return false;
      }
      if (order != currentOrder || changesSeen != currentOrder.changeCount()) {
        map = current;
        order = currentOrder;
        changesSeen = order.changeCount();
        position = last.base == null ? order.first() : order.seek(last, !hasPassedLast);
      }
      return position != OrderIndex.END;
    }

    int address() {
      return order.address(position);
    }

    byte[] slab() {
      return map.slab(address());
    }

    long at() {
      return Slabs.at(address());
    }

    void step() {
      position = order.next(position);
    }
  }

  OrderedScan(
      WriteBuffer buffer,
      CommittedCache committed,
      CachedFamily family,
      IndexedReads indexed,
      byte[] from,
      byte[] to) {
    super(buffer, committed, family, from, to, FIRST_PAGE_ROWS, FIRST_PAGE_BYTES);
    this.indexed = indexed;
    indexed.follow(this);
  }

  @Override
  public boolean next() {
    if (isClosed) {
      return false;
    }
    buffer.beginCall();
    while (true) {
      int order = seekSides();
      if (order == NO_SIDE || to != null && Bytes.compare(key, to) >= 0) {
        close();
        return false;
      }
      boolean isRow = order > 0 || mergeWrite(order == 0);
      pass(order);
      if (isRow) {
        return true;
      }
    }
  }

  /**
   * Moves both sides to their next keys, and sets the key to the smaller one, and the value if it
   * is below the writes. Returns {@link #NO_SIDE} if there is none, a number below 0 for a write,
   * above 0 for a row below, 0 for both.
   */
  private int seekSides() {
    boolean hasWrite = written.seek(writes);
    if (!family.knowsAbsentKeys() && page == null) {
      committed.refills.runIfWorthwhile();
    }
    isCached = family.knowsAbsentKeys();
    if (isCached && page != null) {
      // The scan goes on behind the page; after an eviction a new one begins at the last key.
      page = null;
    }
    boolean hasBelow = isCached ? seekCached() : seekBelow();
    if (!hasWrite) {
      return hasBelow ? 1 : NO_SIDE;
    }
    int order = hasBelow ? compareSides() : -1;
    if (order < 0) {
      Entry.key(written.slab(), written.at(), key);
    }
    return order;
  }

  /** Makes the key the last one; the sides that have it step over it. */
  private void pass(int order) {
    if (order <= 0) {
      written.step();
    }
    if (order >= 0) {
      if (isCached) {
        cached.step();
      } else {
        passBelow(true);
      }
    }
    setLast(key);
  }

  private int compareSides() {
    byte[] slab = written.slab();
    long at = written.at();
    int length = Entry.keyLength(slab, at);
    return Bytes.compare(slab, Entry.keyAt(at), length, key.base, key.offset, key.length);
  }

  /** Sets key and value to the next cached row. */
  private boolean seekCached() {
    if (!cached.seek(family)) {
      return false;
    }
    byte[] slab = cached.slab();
    long at = cached.at();
    Entry.key(slab, at, key);
    Entry.value(slab, at, value);
    return true;
  }

  /**
   * Sets the value to that of the write, as the scan sees it, over the row below. False: there is
   * no row of the key.
   */
  private boolean mergeWrite(boolean hasBelow) {
    int seen = seenOf(written.address());
    if (seen == 0) {
      return hasBelow;
    }
    byte[] slab = writes.slab(seen);
    long at = Slabs.at(seen);
    byte op = Entry.op(slab, at);
    if (hasBelow && op == WriteBlock.APPEND) {
      ByteSpan appended = new ByteSpan();
      Entry.value(slab, at, appended);
      value.set(Bytes.join(value, appended));
    } else {
      Entry.value(slab, at, value);
    }
    return op != WriteBlock.DELETE;
  }

  @Override
  public void close() {
    super.close();
    indexed.end(this);
  }
}
