package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.WriteBlock;

/**
 * A range of an ordered family in key order: the overlay merged over the base if that is complete,
 * else over pages from the engine.
 *
 * <p>Its place is the last key given. Whatever changes meanwhile (a write, a spill, an eviction),
 * both sides are sought again from there.
 */
final class OrderedScan extends RowCursor {
  private static final int FIRST_PAGE_ROWS = 256;
  private static final int MAX_PAGE_ROWS = 16_384;
  private static final int FIRST_PAGE_BYTES = 1 << 16;
  private static final int MAX_PAGE_BYTES = 1 << 20;

  private final CacheSession session;
  private final CachedFamily family;
  private final byte[] from;
  private final byte[] to;
  private final Side written = new Side();
  private final Side committed = new Side();

  private boolean closed;

  /** The key that the sides stand behind; null: the range's start. */
  private Object lastBase;

  private long lastOffset;
  private int lastLength;

  private RowPage page;
  private int row;
  private int pageRows = FIRST_PAGE_ROWS;
  private int pageBytes = FIRST_PAGE_BYTES;
  private long spillsSeen;

  /** A walk through one order, found again when that changes. */
  private final class Side {
    EntryMap map;
    OrderIndex order;
    int changes;
    long position;

    /** Makes the side stand at the first key behind the last one given; false: there is none. */
    boolean settle(EntryMap now) {
      OrderIndex nowOrder = now == null ? null : now.order;
      if (nowOrder == null) {
        order = null;
        return false;
      }
      if (order != nowOrder || changes != nowOrder.changes()) {
        map = now;
        order = nowOrder;
        changes = nowOrder.changes();
        if (lastBase != null) {
          position = order.seek(lastBase, lastOffset, lastLength, false);
        } else {
          position =
              from == null ? order.first() : order.seek(from, Bytes.ARRAY, from.length, true);
        }
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

  OrderedScan(CacheSession session, CachedFamily family, byte[] from, byte[] to) {
    this.session = session;
    this.family = family;
    this.from = from;
    this.to = to;
  }

  @Override
  public boolean next() {
    if (closed) {
      return false;
    }
    session.checkOpen();
    while (true) {
      boolean hasWrite = written.settle(session.writes(family));
      boolean inBase = family.knowsAbsent();
      boolean hasCommitted = inBase ? committed.settle(family) : settlePage();
      if (!hasWrite && !hasCommitted) {
        close();
        return false;
      }
      int order = !hasWrite ? 1 : !hasCommitted ? -1 : compareSides(inBase);
      boolean given = order > 0 ? takeCommitted(inBase) : takeWrite(order == 0, inBase);
      if (closed) {
        return false;
      }
      if (given) {
        return true;
      }
    }
  }

  private int compareSides(boolean inBase) {
    byte[] slab = written.slab();
    long at = written.at();
    if (inBase) {
      byte[] other = committed.slab();
      long otherAt = committed.at();
      return Bytes.compare(
          slab,
          Entry.key(at),
          Entry.keyLength(slab, at),
          other,
          Entry.key(otherAt),
          Entry.keyLength(other, otherAt));
    }
    return Bytes.compare(
        slab,
        Entry.key(at),
        Entry.keyLength(slab, at),
        page.data,
        Bytes.ARRAY + page.keyOffset[row],
        page.keyLength[row]);
  }

  /**
   * Passes the overlay's entry, and the committed row of the same key if there is one. True: it is
   * a row.
   */
  private boolean takeWrite(boolean both, boolean inBase) {
    byte[] slab = written.slab();
    long at = written.at();
    int length = Entry.keyLength(slab, at);
    if (endsBefore(slab, Entry.key(at), length)) {
      return false;
    }
    byte state = Entry.state(slab, at);
    if (state == WriteBlock.PUT) {
      value.set(slab, Entry.value(slab, at), Entry.valueLength(slab, at));
    } else if (state == WriteBlock.APPEND) {
      setAppended(slab, at, both, inBase);
    }
    written.step();
    if (both) {
      if (inBase) {
        committed.step();
      } else {
        row++;
      }
    }
    pass(slab, Entry.key(at), length);
    return state != WriteBlock.DELETE;
  }

  private void setAppended(byte[] slab, long at, boolean both, boolean inBase) {
    long tail = Entry.value(slab, at);
    int tailLength = Entry.valueLength(slab, at);
    if (!both) {
      value.set(slab, tail, tailLength);
      return;
    }
    byte[] joined;
    if (inBase) {
      byte[] list = committed.slab();
      long listAt = committed.at();
      joined =
          Bytes.join(
              list,
              Entry.value(list, listAt),
              Entry.valueLength(list, listAt),
              slab,
              tail,
              tailLength);
    } else {
      joined =
          Bytes.join(
              page.data,
              Bytes.ARRAY + page.valueOffset[row],
              page.valueLength[row],
              slab,
              tail,
              tailLength);
    }
    value.set(joined, Bytes.ARRAY, joined.length);
  }

  private boolean takeCommitted(boolean inBase) {
    if (inBase) {
      byte[] slab = committed.slab();
      long at = committed.at();
      int length = Entry.keyLength(slab, at);
      if (endsBefore(slab, Entry.key(at), length)) {
        return false;
      }
      value.set(slab, Entry.value(slab, at), Entry.valueLength(slab, at));
      committed.step();
      pass(slab, Entry.key(at), length);
      return true;
    }
    value.set(page.data, Bytes.ARRAY + page.valueOffset[row], page.valueLength[row]);
    pass(page.data, Bytes.ARRAY + page.keyOffset[row], page.keyLength[row]);
    row++;
    return true;
  }

  private void pass(Object base, long offset, int length) {
    lastBase = base;
    lastOffset = offset;
    lastLength = length;
    key.set(base, offset, length);
  }

  /** Ends the scan if the smallest key left is not in the range. */
  private boolean endsBefore(byte[] slab, long key, int length) {
    if (to == null || Bytes.compare(slab, key, length, to, Bytes.ARRAY, to.length) < 0) {
      return false;
    }
    close();
    return true;
  }

  /**
   * Makes the page stand at the first committed or spilled key behind the last one given; false:
   * there is none.
   */
  private boolean settlePage() {
    if (page != null && spillsSeen == session.spillCount()) {
      if (row < page.count) {
        return true;
      }
      if (!page.more) {
        return false;
      }
    } else {
      page = null;
    }
    spillsSeen = session.spillCount();
    byte[] start = from;
    boolean inclusive = true;
    byte[] reached =
        page == null
            ? null
            : Bytes.toArray(
                page.data, Bytes.ARRAY + page.keyOffset[row - 1], page.keyLength[row - 1]);
    byte[] last = lastBase == null ? null : Bytes.toArray(lastBase, lastOffset, lastLength);
    if (reached != null || last != null) {
      start = reached != null ? reached : last;
      inclusive = false;
    }
    page = session.page(family, start, inclusive, to, pageRows, pageBytes);
    row = 0;
    pageRows = Math.min(MAX_PAGE_ROWS, pageRows * 4);
    pageBytes = Math.min(MAX_PAGE_BYTES, pageBytes * 4);
    return page.count > 0;
  }

  @Override
  public void close() {
    closed = true;
    page = null;
    lastBase = null;
  }
}
