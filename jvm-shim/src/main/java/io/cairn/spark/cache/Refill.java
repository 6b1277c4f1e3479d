package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.PendingRows;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;
import io.cairn.spark.protocol.WriteBlock;
import java.util.List;
import java.util.function.BooleanSupplier;

/**
 * Reads the committed rows that the cache lacks, until families are complete.
 *
 * <p>Runs in a session that has spilled nothing: a page then has committed rows only. The rows come
 * in pages, in the order of the keys; a family notes the last key of each page. So a refill can
 * stop after any page, and a later session continues there: commits in between keep the cached part
 * correct, and a loss of entries ends the refill of that family. Each page is at the cached
 * version, because the engine must have applied it: a row that is cached already is the same there.
 *
 * <p>Evicts no entry of this store, and of other stores only what is above their fair share. Spec:
 * docs/adr/0016-a-store-that-fits-is-refilled.md.
 */
final class Refill {
  private static final int PAGE_ROWS = 8_192;
  private static final int PAGE_BYTES = 1 << 20;

  /** The request for a page costs as much as this number of rows. */
  private static final int ROWS_PER_PAGE = 64;

  /** A row with this number of bytes costs as much as two small ones. */
  private static final int BYTES_PER_ROW = 512;

  private final CachedFamilies families;
  private final Eviction eviction;
  private final MemoryAccount account;
  private final ByteSpan key = new ByteSpan();
  private final ByteSpan value = new ByteSpan();

  Refill(CachedFamilies families, Eviction eviction, MemoryAccount account) {
    this.families = families;
    this.eviction = eviction;
    this.account = account;
  }

  /**
   * Refills until the families are complete, memory is used up, or {@code stops} is true, which is
   * called before each request. A family for which there is no memory keeps the rows that were
   * read. Returns the rows that were read; a large row counts as several.
   */
  long run(PageSource pages, List<CachedFamily> some, BooleanSupplier stops) {
    long cost = 0;
    try {
      for (CachedFamily family : some) {
        boolean goesOn = !family.isComplete && !stops.getAsBoolean();
        PendingRows following = null;
        while (goesOn) {
          RowPage page = following == null ? null : pages.take(following);
          if (page == null) {
            page = pages.read(firstPage(family));
          }
          // The worker reads it while the rows of this one are added.
          following = page.more ? pages.start(pageAfter(family, page)) : null;
          cost += costOf(page);
          goesOn = addAll(family, page) && page.more && !stops.getAsBoolean();
        }
      }
      return cost;
    } finally {
      key.clear();
      value.clear();
    }
  }

  private static long costOf(RowPage page) {
    long cost = ROWS_PER_PAGE;
    for (int row = 0; row < page.count; row++) {
      cost += 1 + (page.keyLength[row] + (long) page.valueLength[row]) / BYTES_PER_ROW;
    }
    return cost;
  }

  /** The request for the page with which the refill begins or goes on. */
  private ScanRequest firstPage(CachedFamily family) {
    if (!family.isRefilling()) {
      // The entries of absent keys are dropped, and with them what the engine may not have yet.
      families.require(families.version());
      family.startRefill();
    }
    return pageAfter(family, family.refilledThrough());
  }

  private ScanRequest pageAfter(CachedFamily family, RowPage page) {
    page.key(page.count - 1, key);
    return pageAfter(family, key.toArray());
  }

  private static ScanRequest pageAfter(CachedFamily family, byte[] from) {
    return new ScanRequest(family.id, from, from == null, null, PAGE_ROWS, PAGE_BYTES);
  }

  /**
   * Adds the rows of a page. False: there was no memory, and the family's refill has ended. It also
   * ends with an error, because the next refill would read the same page.
   */
  private boolean addAll(CachedFamily family, RowPage page) {
    try {
      return addRows(family, page);
    } catch (RuntimeException | Error e) {
      families.loseCompleteness(family);
      throw e;
    }
  }

  private boolean addRows(CachedFamily family, RowPage page) {
    for (int row = 0; row < page.count; row++) {
      if (page.origin[row] != RowPage.COMMITTED) {
        throw new IllegalStateException("[CAIRN_INTERNAL] a refill read a row that is spilled");
      }
      page.key(row, key);
      page.value(row, value);
      if (!add(family)) {
        families.loseCompleteness(family);
        return false;
      }
    }
    if (page.more) {
      family.noteRefilled(key);
    } else {
      family.finishRefill();
    }
    return true;
  }

  private boolean add(CachedFamily family) {
    int hash = Bytes.hash(key);
    int address = family.find(hash, key);
    if (address == 0) {
      long needed = family.bytesToInsert(key.length, Entry.capacityFor(value.length));
      if (!reserve(needed)) {
        return false;
      }
      family.insert(hash, key, value);
      return true;
    }
    if (Entry.state(family.slab(address), Slabs.at(address)) != WriteBlock.PUT) {
      // A read then asks the engine, which must have applied the version.
      families.require(families.version());
      family.remove(address);
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the engine has a row for a key that the cache has as absent");
    }
    if (!reserve(family.bytesToOrder())) {
      return false;
    }
    family.addToOrder(address);
    return true;
  }

  private boolean reserve(long needed) {
    while (!account.tryReserve(needed)) {
      if (!eviction.takeFromIdle(needed)) {
        return false;
      }
    }
    return true;
  }
}
