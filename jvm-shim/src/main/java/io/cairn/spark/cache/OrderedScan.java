package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.cache.memory.OrderIndex;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;
import io.cairn.spark.protocol.WriteBlock;

/**
 * A range of an ordered family in key order: the writes merged over the committed rows, from the
 * cache if it has all keys, or else in pages from the engine.
 *
 * <p>The place of the scan is the last key that it passed. After any change (a write, a spill, an
 * eviction), both sides start again from there.
 */
final class OrderedScan extends RowCursor implements IndexedReads.Scan {
  private static final int FIRST_PAGE_ROWS = 256;
  private static final int MAX_PAGE_ROWS = 16_384;
  private static final int FIRST_PAGE_BYTES = 1 << 16;
  private static final int MAX_PAGE_BYTES = 1 << 20;

  private final WriteBuffer buffer;
  private final CommittedCache committed;
  private final CachedFamily family;
  private final IndexedReads indexed;
  private final ScanPages pages;
  private final ByteSpan to;
  private final Side written = new Side();
  private final Side cached = new Side();

  /** The last key that was passed; before the first, the start of the range (base null: none). */
  private final ByteSpan last = new ByteSpan();

  private boolean hasPassedLast;
  private boolean isClosed;
  private RowPage page;
  private int row;

  /** Rows of the page that belong to the range. */
  private int rowEnd;

  /** Rows of the range follow after the page. */
  private boolean hasMore;

  private int pageRows = FIRST_PAGE_ROWS;
  private int pageBytes = FIRST_PAGE_BYTES;
  private long spillsSeen;

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

    byte[] slab() {
      return map.slab(order.address(position));
    }

    long at() {
      return Slabs.at(order.address(position));
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
    this.buffer = buffer;
    this.committed = committed;
    this.family = family;
    this.indexed = indexed;
    pages = new ScanPages(committed.pages);
    if (from != null) {
      last.set(from);
    }
    this.to = to == null ? null : new ByteSpan(to);
    indexed.follow(this);
  }

  @Override
  public RowPage page() {
    return page;
  }

  @Override
  public int row() {
    return row;
  }

  @Override
  public int rowEnd() {
    return rowEnd;
  }

  @Override
  public boolean next() {
    if (isClosed) {
      return false;
    }
    buffer.beginCall();
    while (true) {
      boolean hasWrite = written.seek(buffer.writes(family.id));
      if (!family.knowsAbsentKeys() && page == null) {
        committed.refillIfWorthwhile();
      }
      boolean isCached = family.knowsAbsentKeys();
      if (isCached) {
        // The scan goes on behind the page; after an eviction a new one begins at the last key.
        dropPage();
      }
      boolean hasCommitted = isCached ? seekCached() : seekInPage();
      int order = 1;
      if (hasWrite) {
        order = hasCommitted ? compareSides() : -1;
      } else if (!hasCommitted) {
        close();
        return false;
      }
      if (order < 0) {
        Entry.key(written.slab(), written.at(), key);
      }
      if (to != null && Bytes.compare(key, to) >= 0) {
        close();
        return false;
      }
      boolean isRow = order > 0 || mergeWrite(order == 0);
      if (order <= 0) {
        written.step();
      }
      if (order >= 0) {
        stepCommitted(isCached);
      }
      last.set(key);
      hasPassedLast = true;
      if (isRow) {
        return true;
      }
    }
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

  private void stepCommitted(boolean isCached) {
    if (isCached) {
      cached.step();
    } else {
      row++;
    }
  }

  /** Sets the value to the write's; an append follows the committed value. False: a delete. */
  private boolean mergeWrite(boolean hasCommitted) {
    byte[] slab = written.slab();
    long at = written.at();
    if (hasCommitted && Entry.state(slab, at) == WriteBlock.APPEND) {
      ByteSpan appended = new ByteSpan();
      Entry.value(slab, at, appended);
      value.set(Bytes.join(value, appended));
    } else {
      Entry.value(slab, at, value);
    }
    return Entry.state(slab, at) != WriteBlock.DELETE;
  }

  /** Sets key and value to the next committed or spilled row of a page. */
  private boolean seekInPage() {
    boolean isCurrent = page != null && spillsSeen == buffer.spillCount();
    if (isCurrent && row == rowEnd && !hasMore) {
      return false;
    }
    if (!isCurrent || row == rowEnd) {
      if (!isCurrent) {
        pages.drop();
      }
      byte[] start = last.base == null ? null : last.toArray();
      byte[] end = to == null ? null : to.toArray();
      spillsSeen = buffer.spillCount();
      if (page == null && !hasPassedLast) {
        PrefetchedRanges.Slice found = committed.ranges.find(family, start, end);
        if (found != null) {
          page = found.page();
          row = found.first();
          rowEnd = found.end();
          hasMore = false;
          return setRow();
        }
      }
      ScanRequest request =
          new ScanRequest(family.id, start, !hasPassedLast, end, pageRows, pageBytes);
      page = pages.read(request);
      committed.notePaid(page);
      row = 0;
      rowEnd = page.count;
      hasMore = page.more;
      pageRows = Math.min(MAX_PAGE_ROWS, pageRows * 4);
      pageBytes = Math.min(MAX_PAGE_BYTES, pageBytes * 4);
      pages.readAhead(page, new ScanRequest(family.id, start, false, end, pageRows, pageBytes));
    }
    return setRow();
  }

  /** False: the page has no further row of the range. */
  private boolean setRow() {
    if (row == rowEnd) {
      return false;
    }
    page.key(row, key);
    page.value(row, value);
    if (page.origin[row] == RowPage.COMMITTED) {
      buffer.scanned.note(family, key);
    }
    return true;
  }

  @Override
  public void close() {
    isClosed = true;
    indexed.end(this);
    buffer.scanned.forget();
    dropPage();
    last.base = null;
  }

  private void dropPage() {
    page = null;
    pages.drop();
  }
}
