package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.WriteBlock;

/**
 * All rows of a family in the order of their storage: first what stood in the overlay when the scan
 * opened, then the committed rows that had no entry there, out of the base if it is complete, else
 * in pages from the engine.
 *
 * <p>Overlay and base are walked slab by slab. An overlay entry that moved since is found through
 * its old copy, so none is missed or met twice.
 */
final class UnorderedScan extends RowCursor {
  private static final int PAGE_ROWS = 16_384;
  private static final int PAGE_BYTES = 1 << 20;
  private static final int AHEAD_KEYS = 256;

  private final CacheSession session;
  private final CachedFamily family;
  private final boolean walkBase;

  /**
   * The writes that stood there when the scan opened lie below these limits; null and 0: there were
   * none.
   */
  private final WriteBuffer overlay;

  private final EntryMap writes;
  private final int[] limits;
  private final int epoch;

  private boolean inWrites;
  private boolean closed;
  private int slabNumber;
  private byte[] slab;
  private long at;
  private long end;
  private int appendsAhead;
  private RowPage page;
  private int row;

  UnorderedScan(CacheSession session, CachedFamily family, WriteBuffer current) {
    this.session = session;
    this.family = family;
    EntryMap map = current.family(family.id);
    writes = map == null || map.table.count() == 0 ? null : map;
    overlay = writes == null ? null : current;
    epoch = writes == null ? 0 : current.open();
    limits = writes == null ? null : writes.slabs.usedNow();
    inWrites = writes != null;
    walkBase = family.knowsAbsent();
    if (walkBase) {
      family.walkers++;
    }
  }

  @Override
  public boolean next() {
    if (closed) {
      return false;
    }
    session.checkOpen();
    if (inWrites) {
      if (nextWrite()) {
        return true;
      }
      inWrites = false;
      slabNumber = 0;
      slab = null;
    }
    if (walkBase ? nextInBase() : nextInPages()) {
      return true;
    }
    close();
    return false;
  }

  private boolean nextWrite() {
    while (true) {
      if (slab == null || at >= end) {
        if (++slabNumber >= limits.length) {
          return false;
        }
        slab = writes.slabs.slab(slabNumber);
        at = Bytes.ARRAY;
        end = at + limits[slabNumber];
        continue;
      }
      long here = at;
      at += Entry.size(slab, here);
      if (giveWrite(slab, here)) {
        return true;
      }
    }
  }

  private boolean giveWrite(byte[] visited, long visitedAt) {
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
    byte state = Entry.state(entry, entryAt);
    if (state == WriteBlock.PUT) {
      key.set(entry, Entry.key(entryAt), Entry.keyLength(entry, entryAt));
      value.set(entry, Entry.value(entry, entryAt), Entry.valueLength(entry, entryAt));
      return true;
    }
    return state == WriteBlock.APPEND && giveAppend(entry, entryAt, visitedAt);
  }

  private boolean isBelowLimit(int address) {
    int number = Slabs.slabOf(address);
    return number < limits.length && Slabs.at(address) < Bytes.ARRAY + limits[number];
  }

  private boolean giveAppend(byte[] entry, long entryAt, long visitedAt) {
    if (appendsAhead == 0) {
      fetchAppends(visitedAt);
    }
    appendsAhead--;
    int hash = Entry.hash(entry, entryAt);
    int length = Entry.keyLength(entry, entryAt);
    key.set(entry, Entry.key(entryAt), length);
    if (overlay.isRetired()) {
      // The append has been spilled meanwhile: what the engine has includes it.
      if (!session.read(family, hash, entry, key.offset, length, value)) {
        return false;
      }
    } else {
      session.readAppended(family, hash, entry, entryAt, value);
    }
    return true;
  }

  /** Asks for the committed lists of the next appends in one request. */
  private void fetchAppends(long from) {
    byte[][] keys = new byte[AHEAD_KEYS][];
    int count = 0;
    byte[] array = slab;
    long position = from;
    for (int number = slabNumber; count < AHEAD_KEYS && number < limits.length; ) {
      if (array == null || position >= Bytes.ARRAY + limits[number]) {
        array = ++number < limits.length ? writes.slabs.slab(number) : null;
        position = Bytes.ARRAY;
        continue;
      }
      // An append that moved is asked for by its old copy, which has the same key.
      byte state = Entry.state(array, position);
      if (state == WriteBlock.APPEND || state == Entry.MOVED) {
        keys[count++] = Bytes.toArray(array, Entry.key(position), Entry.keyLength(array, position));
      }
      position += Entry.size(array, position);
    }
    session.prefetch(family, keys, count);
    appendsAhead = Math.max(1, count);
  }

  /** Whether the overlay walk has answered for this key. */
  private boolean hadWrite(int hash, Object base, long offset, int length) {
    int address = writes.find(hash, base, offset, length);
    return address != 0 && Entry.epoch(writes.slab(address), Slabs.at(address)) < epoch;
  }

  private boolean nextInBase() {
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
      long keyAt = Entry.key(here);
      if (writes != null && hadWrite(Entry.hash(array, here), array, keyAt, length)) {
        continue;
      }
      key.set(array, keyAt, length);
      value.set(array, Entry.value(array, here), Entry.valueLength(array, here));
      return true;
    }
  }

  private boolean nextInPages() {
    while (true) {
      if (page == null || row == page.count) {
        if (page != null && !page.more) {
          return false;
        }
        byte[] from =
            page == null
                ? null
                : Bytes.toArray(
                    page.data, Bytes.ARRAY + page.keyOffset[row - 1], page.keyLength[row - 1]);
        page = session.page(family, from, from == null, null, PAGE_ROWS, PAGE_BYTES);
        row = 0;
        continue;
      }
      int i = row++;
      long keyAt = Bytes.ARRAY + page.keyOffset[i];
      int length = page.keyLength[i];
      if (writes != null
          && hadWrite(Bytes.hash(page.data, keyAt, length), page.data, keyAt, length)) {
        continue;
      }
      key.set(page.data, keyAt, length);
      value.set(page.data, Bytes.ARRAY + page.valueOffset[i], page.valueLength[i]);
      return true;
    }
  }

  @Override
  public void close() {
    if (closed) {
      return;
    }
    closed = true;
    page = null;
    slab = null;
    if (session.isOpen()) {
      if (overlay != null) {
        overlay.unpin();
      }
      if (walkBase) {
        family.walkers--;
      }
    }
  }
}
