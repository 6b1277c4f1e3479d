package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.MemoryPool;
import io.cairn.spark.cache.memory.Slabs;

/**
 * Frees memory for a store: its own committed entries, and those of stores that are not in use.
 *
 * <p>CLOCK over the slabs of the largest incomplete family, or else of the largest complete one,
 * which is incomplete from then on. Entries that a request has marked for a coming read move to
 * another slab, and so do those that were read since the last pass (at most half a slab); the
 * others are dropped. Slabs with versions that the engine has applied are freed first; if another
 * one must be freed, the engine must apply its version before it answers again. A family with an
 * open scan over its slabs is not evicted.
 */
final class Eviction {
  /** Half of an evicted slab's bytes may stay in use. */
  private static final int MAX_SLABS_FOR_OTHERS = 3;

  private final CachedFamilies families;
  private final MemoryAccount account;
  private long evictedSlabs;

  Eviction(CachedFamilies families, MemoryAccount account) {
    this.families = families;
    this.account = account;
  }

  long evictedSlabs() {
    return evictedSlabs;
  }

  /**
   * Frees some memory for a reservation; the caller repeats it until the reservation succeeds. For
   * a store below its fair share it evicts first from idle stores above theirs, then from this
   * store, then from any idle store. False: nothing is left to evict.
   */
  boolean freeMemoryFor(long wanted) {
    MemoryPool pool = account.pool();
    return takeFromIdle(wanted)
        || wanted <= pool.limitBytes() && (evictOwn(wanted) || pool.evictIdle(wanted, false));
  }

  /**
   * Frees a slab of this store; above its fair share also a slab for the others, which cannot evict
   * a store in use. False: no slab may be freed.
   */
  private boolean evictOwn(long wanted) {
    boolean isFreed = evictSlab();
    for (int more = 0; isFreed && more < MAX_SLABS_FOR_OTHERS; more++) {
      boolean isOwed = account.bytesAboveShare() > Slabs.MAX_BYTES;
      if (!isOwed || account.pool().freeBytes() >= wanted + Slabs.MAX_BYTES || !evictSlab()) {
        break;
      }
    }
    return isFreed;
  }

  /**
   * Reserves memory for a new entry, if necessary by eviction. False: there is not enough, and the
   * entry cannot be cached.
   */
  boolean reserve(CachedFamily family, int keyLength, int capacity) {
    while (!account.tryReserve(family.bytesToInsert(keyLength, capacity))) {
      // The eviction may change this family, so that it needs more or less than before.
      if (!freeMemoryFor(family.bytesToInsert(keyLength, capacity))) {
        return false;
      }
    }
    return true;
  }

  /** Adds an entry for a key that has none; null value: the key is absent. 0: no memory. */
  int insert(CachedFamily family, int hash, ByteSpan key, ByteSpan value) {
    int capacity = Entry.capacityFor(value == null ? 0 : value.length);
    return reserve(family, key.length, capacity) ? family.insert(hash, key, value) : 0;
  }

  /**
   * If this store is below its fair share, frees some memory of idle stores above theirs. False:
   * nothing was freed.
   */
  boolean takeFromIdle(long wanted) {
    MemoryPool pool = account.pool();
    return wanted <= pool.limitBytes() && account.isBelowShare() && pool.evictIdle(wanted, true);
  }

  /** Frees one slab of this store. False: no slab may be freed. */
  boolean evictSlab() {
    CachedFamily family = pickFamily();
    if (family == null) {
      return false;
    }
    families.loseCompleteness(family);
    int slab = pickSlab(family);
    for (int left = family.slabs.end(); left > 0 && passesOver(family, slab); left--) {
      slab = pickSlab(family);
    }
    clean(family, slab, family.slabs.used(slab) / 2, true);
    evictedSlabs++;
    family.shrinkIndexes();
    return true;
  }

  private CachedFamily pickFamily() {
    CachedFamily best = null;
    for (CachedFamily family : families.all()) {
      boolean mayGo = family.openScans == 0 && family.slabs.bytes() > 0;
      if (mayGo && (best == null || isBetter(family, best))) {
        best = family;
      }
    }
    return best;
  }

  private static boolean isBetter(CachedFamily family, CachedFamily best) {
    return family.isComplete == best.isComplete ? family.bytes() > best.bytes() : best.isComplete;
  }

  private int pickSlab(CachedFamily family) {
    Slabs slabs = family.slabs;
    int slabCount = slabs.end() - 1;
    int unapplied = 0;
    for (int i = 0; i < slabCount; i++) {
      int slab = (family.nextVictim - 1 + i) % slabCount + 1;
      if (slabs.slab(slab) == null || slab == slabs.current()) {
        continue;
      }
      if (slabs.version(slab) <= families.appliedThrough()) {
        family.nextVictim = slab + 1;
        return slab;
      }
      unapplied = unapplied == 0 ? slab : unapplied;
    }
    if (unapplied == 0) {
      return slabs.current();
    }
    family.nextVictim = unapplied + 1;
    return unapplied;
  }

  /**
   * Whether a slab stays until the next pass: its only entry was read since the last one. Another
   * slab has no place for an entry that is so large.
   */
  private static boolean passesOver(CachedFamily family, int slab) {
    byte[] array = family.slabs.slab(slab);
    long at = Bytes.ARRAY;
    boolean isRead =
        Entry.size(array, at) == family.slabs.used(slab)
            && Entry.size(array, at) > Slabs.LARGE_BYTES
            && Entry.has(array, at, Entry.REFERENCED);
    if (isRead) {
      Entry.lower(array, at, Entry.REFERENCED);
    }
    return isRead;
  }

  /**
   * Empties one slab: its live entries (or only those that were read) move, up to {@code keepBytes}
   * and as far as memory is free; the others are dropped.
   */
  private void clean(CachedFamily family, int slab, int keepBytes, boolean onlyReferenced) {
    Slabs slabs = family.slabs;
    byte[] array = slabs.slab(slab);
    long version = slabs.version(slab);
    long end = Bytes.ARRAY + slabs.used(slab);
    int kept = 0;
    slabs.releaseMemory(slab);
    int size;
    for (long at = Bytes.ARRAY; at < end; at += size) {
      size = Entry.size(array, at);
      if (Entry.state(array, at) == Entry.DEAD) {
        continue;
      }
      int address = Slabs.address(slab, at);
      boolean isAwaited = Entry.has(array, at, Entry.AWAITED);
      boolean isKept =
          (!onlyReferenced || isAwaited || Entry.has(array, at, Entry.REFERENCED))
              && (size <= keepBytes - kept || isAwaited)
              && account.tryReserve(slabs.bytesToAllocate(size))
              && move(family, address, version);
      if (isKept) {
        kept += size;
        continue;
      }
      // Otherwise a compaction without memory would remove entries of a complete family.
      families.loseCompleteness(family);
      if (version > families.appliedThrough()) {
        families.require(version);
      }
      family.forget(array, at);
      family.unlink(address);
    }
    slabs.remove(slab);
  }

  /**
   * Moves an entry of a slab of some version. False: the heap has no memory. The slab must be freed
   * all the same, because others may go on after that.
   */
  private static boolean move(CachedFamily family, int address, long version) {
    int moved;
    try {
      moved = family.move(address);
    } catch (OutOfMemoryError e) {
      return false;
    }
    Slabs slabs = family.slabs;
    Entry.lower(
        slabs.slab(Slabs.slabOf(moved)),
        Slabs.at(moved),
        (byte) (Entry.REFERENCED | Entry.AWAITED));
    slabs.noteVersion(Slabs.slabOf(moved), version);
    return true;
  }

  /** Compacts slabs that are largely dead or free, at the end of a commit, and the indexes. */
  void compact() {
    for (CachedFamily family : families.all()) {
      Slabs slabs = family.slabs;
      while (slabs.deadBytes() > Math.max(Slabs.MAX_BYTES / 4, slabs.usedBytes() / 4)) {
        int slab = emptiest(slabs);
        if (slab == 0) {
          break;
        }
        clean(family, slab, Integer.MAX_VALUE, false);
      }
      boolean isLargelyFree =
          slabs.bytes() >= Slabs.MAX_BYTES && slabs.liveBytes() * 8 < slabs.bytes();
      if (isLargelyFree && slabs.current() != 0) {
        clean(family, slabs.current(), Integer.MAX_VALUE, false);
      }
      family.shrinkIndexes();
    }
  }

  private static int emptiest(Slabs slabs) {
    int best = 0;
    int bestDead = 0;
    for (int s = 1; s < slabs.end(); s++) {
      if (slabs.slab(s) == null || s == slabs.current()) {
        continue;
      }
      int dead = slabs.used(s) - slabs.live(s);
      if (dead > bestDead && dead >= slabs.used(s) / 4) {
        best = s;
        bestDead = dead;
      }
    }
    return best;
  }
}
