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
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;

/**
 * A range of an ordered family in key order: the writes merged over the committed rows, from the
 * cache if it has all keys, or else in pages from the engine.
 *
 * <p>The place of the scan is the last key that it passed. After any change (a write, a spill, an
 * eviction), both sides start again from there.
 *
 * <p>The rows are those of the moment at which the scan was opened, as with Spark's provider:
 * handlers of timers and programs that iterate over a map write while they scan. Before a write
 * changes a key that the scan has not passed, the scan keeps its former write. These are few in
 * Spark's own operators, which change what they have passed; no bound counts them. They are freed
 * with the scan, so a scan that keeps many, and may be an abandoned one, is held by its user alone.
 */
final class OrderedScan extends RowCursor implements IndexedReads.Scan, OpenRanges.Scan {
  private static final int FIRST_PAGE_ROWS = 256;
  private static final int MAX_PAGE_ROWS = 16_384;
  private static final int FIRST_PAGE_BYTES = 1 << 16;
  private static final int MAX_PAGE_BYTES = 1 << 20;

  /** Former writes of a scan that was probably abandoned. */
  private static final int MANY_FORMERS = 1_024;

  /** See {@link #seekSides}; no comparison has this result. */
  private static final int NO_SIDE = Integer.MIN_VALUE;

  private final WriteBuffer buffer;
  private final CommittedCache committed;
  private final CachedFamily family;
  private final IndexedReads indexed;
  private final OpenRanges.Range range;

  private final ByteSpan to;
  private final Side written = new Side();
  private final Side cached = new Side();

  /** The last key that was passed; before the first, the start of the range (base null: none). */
  private final ByteSpan last = new ByteSpan();

  private boolean hasPassedLast;

  /** The committed rows come from the cache at this place, not from a page. */
  private boolean isCached;

  private boolean isClosed;
  private RowPage page;
  private int row;

  /** Rows of the page that belong to the range. */
  private int rowEnd;

  /** Rows of the range follow after the page. */
  private boolean hasMore;

  /** What was written before to keys that were changed since and are not passed; null: none. */
  private TreeMap<byte[], Former> formers;

  private int pageRows = FIRST_PAGE_ROWS;
  private int pageBytes = FIRST_PAGE_BYTES;
  private long spillsSeen;

  /** A former write of a key; state 0: there was none, so the committed row counts. */
  private record Former(byte state, byte[] value) {
    static final Former NONE = new Former((byte) 0, null);
    static final Former DELETED = new Former(WriteBlock.DELETE, null);
  }

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
    if (from != null) {
      last.set(from);
    }
    this.to = to == null ? null : new ByteSpan(to);
    range = buffer.openRanges.open(this, family, from, to);
    indexed.follow(this);
  }

  @Override
  public int family() {
    return family.id;
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
    return formers == null ? nextOfSides() : nextWithFormers();
  }

  private boolean nextOfSides() {
    while (true) {
      int order = seekSides();
      if (order == NO_SIDE || isBehindRange()) {
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

  private boolean nextWithFormers() {
    while (true) {
      int order = seekSides();
      Map.Entry<byte[], Former> first = formers.firstEntry();
      ByteSpan name = first == null ? null : new ByteSpan(first.getKey());
      int toFormer = first == null ? 1 : order == NO_SIDE ? -1 : Bytes.compare(name, key);
      boolean isRow;
      if (toFormer <= 0) {
        formers.pollFirstEntry();
        key.set(name);
        boolean hasCommitted = toFormer == 0 && order >= 0;
        isRow = mergeFormer(first.getValue(), hasCommitted);
      } else if (order == NO_SIDE || isBehindRange()) {
        close();
        return false;
      } else {
        isRow = order > 0 || mergeWrite(order == 0);
      }
      pass(toFormer < 0 ? NO_SIDE : order);
      if (isRow) {
        return true;
      }
    }
  }

  /**
   * Moves both sides to their next keys, and sets the key to the smaller one, and the value if it
   * is committed. Returns {@link #NO_SIDE} if there is none, a number below 0 for a write, above 0
   * for a committed row, 0 for both.
   */
  private int seekSides() {
    boolean hasWrite = written.seek(buffer.writes(family.id));
    if (!family.knowsAbsentKeys() && page == null) {
      committed.refillIfWorthwhile();
    }
    isCached = family.knowsAbsentKeys();
    if (isCached && page != null) {
      // The scan goes on behind the page; after an eviction a new one begins at the last key.
      page = null;
    }
    boolean hasCommitted = isCached ? seekCached() : seekInPage();
    if (!hasWrite) {
      return hasCommitted ? 1 : NO_SIDE;
    }
    int order = hasCommitted ? compareSides() : -1;
    if (order < 0) {
      Entry.key(written.slab(), written.at(), key);
    }
    return order;
  }

  private boolean isBehindRange() {
    return to != null && Bytes.compare(key, to) >= 0;
  }

  /** Makes the key the last one; the sides that have it step over it. */
  private void pass(int order) {
    if (order != NO_SIDE) {
      if (order <= 0) {
        written.step();
      }
      if (order >= 0) {
        stepCommitted();
      }
    }
    last.set(key);
    hasPassedLast = true;
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

  private void stepCommitted() {
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

  /** Sets the value to that of a former write; see {@link #mergeWrite}. */
  private boolean mergeFormer(Former former, boolean hasCommitted) {
    if (former.state == 0) {
      return hasCommitted;
    }
    if (former.state != WriteBlock.DELETE) {
      ByteSpan before = new ByteSpan(former.value);
      boolean follows = hasCommitted && former.state == WriteBlock.APPEND;
      value.set(follows ? new ByteSpan(Bytes.join(value, before)) : before);
    }
    return former.state != WriteBlock.DELETE;
  }

  @Override
  public void beforeWrite(ByteSpan changed, byte[] slab, long at) {
    if (isClosed || isPassed(changed) || to != null && Bytes.compare(changed, to) >= 0) {
      return;
    }
    if (formers == null) {
      formers = new TreeMap<>(Arrays::compareUnsigned);
    }
    byte[] name = changed.toArray();
    if (formers.containsKey(name)) {
      return;
    }
    Former former = Former.NONE;
    if (slab != null && Entry.state(slab, at) == WriteBlock.DELETE) {
      former = Former.DELETED;
    } else if (slab != null) {
      ByteSpan before = new ByteSpan();
      Entry.value(slab, at, before);
      former = new Former(Entry.state(slab, at), before.toArray());
    }
    formers.put(name, former);
    if (formers.size() == MANY_FORMERS) {
      indexed.end(this);
      buffer.openRanges.holdWeakly(range);
    }
  }

  /** Whether a key is before those that follow. */
  private boolean isPassed(ByteSpan changed) {
    if (last.base == null) {
      return false;
    }
    int order = Bytes.compare(changed, last);
    return order < 0 || order == 0 && hasPassedLast;
  }

  /** Reads the committed rows of the former writes that need them. */
  @Override
  public void beforeSpill() {
    if (isClosed || formers == null) {
      return;
    }
    for (Map.Entry<byte[], Former> entry : formers.entrySet()) {
      Former former = entry.getValue();
      if (former.state == WriteBlock.PUT || former.state == WriteBlock.DELETE) {
        continue;
      }
      ByteSpan name = new ByteSpan(entry.getKey());
      ByteSpan found = new ByteSpan();
      byte[] row = former.value;
      if (committed.get(family, Bytes.hash(name), name, found)) {
        row = row == null ? found.toArray() : Bytes.join(found, new ByteSpan(row));
      }
      entry.setValue(row == null ? Former.DELETED : new Former(WriteBlock.PUT, row));
    }
  }

  /** Sets key and value to the next committed or spilled row of a page. */
  private boolean seekInPage() {
    boolean isCurrent = page != null && spillsSeen == buffer.spillCount();
    if (isCurrent && row == rowEnd && !hasMore) {
      return false;
    }
    if (!isCurrent || row == rowEnd) {
      byte[] start = last.base == null ? null : last.toArray();
      byte[] end = to == null ? null : to.toArray();
      spillsSeen = buffer.spillCount();
      if (page == null && !hasPassedLast) {
        Answer.Rows found = committed.answers.slice(family, start, end);
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
      page = committed.pages.read(request);
      committed.notePaid(page);
      row = 0;
      rowEnd = page.count;
      hasMore = page.more;
      pageRows = Math.min(MAX_PAGE_ROWS, pageRows * 4);
      pageBytes = Math.min(MAX_PAGE_BYTES, pageBytes * 4);
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
    // A finished session may be folded in another thread.
    if (buffer.takesWrites()) {
      buffer.openRanges.close(range);
      buffer.scanned.forget();
    }
    indexed.end(this);
    page = null;
    formers = null;
    last.base = null;
  }
}
