package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.bytes.KeySort;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.OrderIndex;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;
import io.cairn.spark.protocol.WriteBlock;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * What both kinds of scans have in common: a scan returns the rows that existed when it was opened.
 *
 * <p>It sees the writes of that moment. The write buffer keeps the version of an entry that an open
 * scan sees beside a newer one, and all of them after a spill. Below the writes are the committed
 * rows and those that were spilled before; they change only by a later spill, after which the
 * engine answers with newer rows. So before a spill the scan keeps the rows that it still needs of
 * the keys that are spilled. No bound counts them; they are freed with the scan.
 *
 * <p>This class has the rows below in the order of their keys, if they come in pages from the
 * engine. Spec: docs/adr/0042-a-scan-has-the-rows-of-its-opening.md.
 */
abstract class Scan extends RowCursor implements OpenScans.Reader {
  static final int MAX_PAGE_ROWS = 16_384;
  static final int MAX_PAGE_BYTES = 1 << 20;
  private static final int PAGE_GROWTH = 4;

  final WriteBuffer buffer;
  final CommittedCache committed;
  final CachedFamily family;
  final OpenScans.Hold hold;

  /** Null: there were none when the scan was opened. */
  final Writes writes;

  /** The end of the range; null: that of the family. */
  final ByteSpan to;

  /** The last key that was passed; before the first, the start of the range (base null: none). */
  final ByteSpan last = new ByteSpan();

  boolean hasPassedLast;
  boolean isClosed;

  /** Null: no page was read, or the scan goes on in the cache. */
  RowPage page;

  /** The first row of the page that was not passed. */
  int row;

  /** Rows of the page that belong to the range. */
  int rowEnd;

  /** Rows of the range follow after the page. */
  private boolean hasMore;

  private int pageRows;
  private int pageBytes;

  /** Rows that spills have hidden from later pages; null: there was no row below the write. */
  final TreeMap<byte[], byte[]> hidden = new TreeMap<>(Arrays::compareUnsigned);

  /** The next row below is hidden from the pages. */
  private boolean isHidden;

  private final ByteSpan hiddenKey = new ByteSpan();

  /**
   * @param from null: no bound, as with {@code to}
   * @param pageRows of the first page; later ones are larger, as {@code pageBytes}
   */
  Scan(
      WriteBuffer buffer,
      CommittedCache committed,
      CachedFamily family,
      byte[] from,
      byte[] to,
      int pageRows,
      int pageBytes) {
    this.buffer = buffer;
    this.committed = committed;
    this.family = family;
    this.to = to == null ? null : new ByteSpan(to);
    this.pageRows = pageRows;
    this.pageBytes = pageBytes;
    if (from != null) {
      last.set(from);
    }
    hold = buffer.scans.open(this, buffer.writes.get(family));
    writes = hold.writes;
  }

  /** Whether the scan sees this version of an entry. */
  final boolean sees(byte[] slab, long at) {
    byte state = Entry.state(slab, at);
    return state != Entry.DEAD
        && Entry.epoch(slab, at) < hold.epoch
        && (state > Entry.DEAD || hold.epoch <= Entry.endEpoch(slab, at));
  }

  /** The version that the scan sees of the key of an entry (0: of none); 0: it sees none. */
  final int seenOf(int newest) {
    int address = newest;
    while (address != 0 && Entry.epoch(writes.slab(address), Slabs.at(address)) >= hold.epoch) {
      address = Entry.former(writes.slab(address), Slabs.at(address));
    }
    return address;
  }

  final void setLast(ByteSpan passed) {
    last.set(passed);
    hasPassedLast = true;
  }

  /** Sets key and value to the next row below the writes. False: there is none. */
  final boolean seekBelow() {
    while (true) {
      boolean isInPage = seekInPage();
      Map.Entry<byte[], byte[]> first = firstHidden();
      int order = -1;
      if (first != null) {
        hiddenKey.set(first.getKey());
        order = isInPage ? Bytes.compare(hiddenKey, key) : -1;
      }
      isHidden = first != null && order <= 0;
      if (!isHidden) {
        return isInPage;
      }
      row += order == 0 ? 1 : 0; // it is newer than the scan
      if (first.getValue() != null) {
        key.set(hiddenKey);
        value.set(first.getValue());
        return true;
      }
      hidden.remove(first.getKey());
    }
  }

  /** Passes the row of {@link #seekBelow}; {@link #setLast} follows. */
  final void passBelow(boolean isReturned) {
    if (isHidden) {
      return;
    }
    if (isReturned && page.origin[row] == RowPage.COMMITTED) {
      page.key(row, hiddenKey);
      buffer.scanned.note(family, hiddenKey);
    }
    row++;
  }

  private Map.Entry<byte[], byte[]> firstHidden() {
    if (hidden.isEmpty() || last.base == null) {
      return hidden.firstEntry();
    }
    byte[] passed = last.toArray();
    return hasPassedLast ? hidden.higherEntry(passed) : hidden.ceilingEntry(passed);
  }

  private boolean seekInPage() {
    if (page == null || row == rowEnd && hasMore) {
      readPage();
    }
    if (row == rowEnd) {
      return false;
    }
    page.key(row, key);
    page.value(row, value);
    return true;
  }

  private void readPage() {
    boolean isFirst = page == null;
    byte[] start = last.base == null ? null : last.toArray();
    byte[] from = isFirst ? start : page.keyBytes(page.count - 1);
    byte[] end = to == null ? null : to.toArray();
    boolean isInclusive = isFirst && !hasPassedLast;
    if (isInclusive && from != null) {
      Answer.Rows found = committed.answers.slice(family, from, end);
      if (found != null) {
        page = found.page();
        row = found.first();
        rowEnd = found.end();
        hasMore = false;
        return;
      }
    }
    page =
        committed.pages.read(
            new ScanRequest(family.id, from, isInclusive, end, pageRows, pageBytes));
    committed.refills.notePaid(page);
    row = 0;
    rowEnd = page.count;
    hasMore = page.more;
    pageRows = Math.min(MAX_PAGE_ROWS, pageRows * PAGE_GROWTH);
    pageBytes = Math.min(MAX_PAGE_BYTES, pageBytes * PAGE_GROWTH);
  }

  /**
   * Keeps the rows below these writes, which are about to be spilled, as far as the scan needs
   * them: those of keys that it has not reached, and of which it sees no write, or one that
   * appends. The rows of the present page are here already.
   */
  @Override
  public void beforeSpill() {
    Writes spilled = buffer.writes.get(family);
    if (spilled == null || page != null && !hasMore) {
      return;
    }
    ByteSpan reached = page == null ? last : new ByteSpan(page.keyBytes(page.count - 1));
    boolean isNeeded = page == null && !hasPassedLast;
    List<byte[]> names = new ArrayList<>();
    OrderIndex order = spilled.order();
    if (order != null) {
      long position = reached.base == null ? order.first() : order.seek(reached, isNeeded);
      while (position != OrderIndex.END && isInRange(spilled, order.address(position))) {
        addHidden(spilled, order.address(position), names);
        position = order.next(position);
      }
    } else {
      for (EntryCursor entries = spilled.cursor(false); entries.next(); ) {
        Entry.key(entries.slab, entries.at, hiddenKey);
        if (reached.base == null || Bytes.compare(hiddenKey, reached) > 0) {
          addHidden(spilled, entries.address(), names);
        }
      }
    }
    byte[][] keys = names.toArray(new byte[0][]);
    KeySort.sort(keys, keys.length);
    byte[][] rows = committed.keys.readAll(family, keys);
    for (int i = 0; i < keys.length; i++) {
      hidden.put(keys[i], rows[i]);
    }
  }

  private boolean isInRange(Writes spilled, int address) {
    Entry.key(spilled.slab(address), Slabs.at(address), hiddenKey);
    return to == null || Bytes.compare(hiddenKey, to) < 0;
  }

  /** Adds the key of a write to {@code names}, if the scan needs the row below it. */
  private void addHidden(Writes spilled, int address, List<byte[]> names) {
    byte[] slab = spilled.slab(address);
    long at = Slabs.at(address);
    int seen = writes == null ? 0 : seenOf(writes.findSameKey(slab, at));
    if (seen == 0 || !hidesBelow(seen)) {
      Entry.key(slab, at, hiddenKey);
      byte[] name = hiddenKey.toArray();
      if (!hidden.containsKey(name)) {
        names.add(name);
      }
    }
  }

  /** Whether the scan needs no row below a write that it sees. */
  boolean hidesBelow(int seen) {
    return Entry.op(writes.slab(seen), Slabs.at(seen)) != WriteBlock.APPEND;
  }

  @Override
  public void close() {
    if (isClosed) {
      return;
    }
    isClosed = true;
    page = null;
    hidden.clear();
    last.clear();
    // A finished session may be folded in another thread, which ends all scans.
    if (buffer.takesWrites()) {
      buffer.scanned.forget();
      buffer.scans.close(hold);
    }
  }
}
