package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;

/**
 * Makes room in a base, slab by slab.
 *
 * <p>CLOCK over the slabs of the largest incomplete family, else of the largest complete one, which
 * loses its mark: entries read since the hand last passed move on (at most half a slab), the others
 * go. Slabs whose versions the engine has applied go first; when another must go, the engine is
 * required to apply before it answers again. A family under a walking scan is left alone.
 */
final class Eviction {
  private final CommittedCache base;

  /** Version up to which the engine has applied, as far as this store heard. */
  long applied;

  long evictedSlabs;

  /** Slabs are being emptied: room that is needed meanwhile must be free already. */
  private boolean busy;

  Eviction(CommittedCache base) {
    this.base = base;
  }

  boolean isBusy() {
    return busy;
  }

  /** Drops one slab. False: there is none that may go. */
  boolean evictOne() {
    if (busy) {
      return false;
    }
    busy = true;
    try {
      return dropSlab();
    } finally {
      busy = false;
    }
  }

  private boolean dropSlab() {
    CachedFamily family = pick();
    if (family == null) {
      return false;
    }
    base.loseCompleteness(family);
    int slab = pickSlab(family);
    if (slab == 0) {
      return false;
    }
    clean(family, slab, family.slabs.used(slab) / 2, true);
    evictedSlabs++;
    if (family.table.count() * 8L * 8L < family.table.bytes()) {
      family.table.shrink();
    }
    return true;
  }

  private CachedFamily pick() {
    CachedFamily incomplete = null;
    CachedFamily complete = null;
    for (int i = 0; i < base.end(); i++) {
      CachedFamily family = base.isDefined(i) ? base.family(i) : null;
      if (family == null || family.walkers > 0 || !hasVictim(family)) {
        continue;
      }
      if (family.complete) {
        complete = complete == null || family.bytes() > complete.bytes() ? family : complete;
      } else {
        incomplete =
            incomplete == null || family.bytes() > incomplete.bytes() ? family : incomplete;
      }
    }
    return incomplete != null ? incomplete : complete;
  }

  private static boolean hasVictim(CachedFamily family) {
    if (family.slabs.bytes() == 0) {
      return false;
    }
    for (int s = 1; s < family.slabs.end(); s++) {
      if (family.slabs.slab(s) != null && s != family.heldSlab) {
        return true;
      }
    }
    return false;
  }

  private int pickSlab(CachedFamily family) {
    Slabs slabs = family.slabs;
    int pinned = 0;
    for (int i = 0; i < slabs.end(); i++) {
      int s = family.hand + i;
      s = s >= slabs.end() ? 1 + (s - slabs.end()) % Math.max(1, slabs.end() - 1) : s;
      if (slabs.slab(s) == null || s == family.heldSlab || s == slabs.current()) {
        continue;
      }
      if (slabs.version(s) <= applied) {
        family.hand = s + 1 >= slabs.end() ? 1 : s + 1;
        return s;
      }
      pinned = pinned == 0 ? s : pinned;
    }
    if (pinned != 0) {
      family.hand = pinned + 1 >= slabs.end() ? 1 : pinned + 1;
      return pinned;
    }
    int last = slabs.current();
    return last == family.heldSlab ? 0 : last;
  }

  /**
   * Empties one slab: of its live entries the referenced ones (or all) move on, up to {@code
   * keepBytes}, the rest is dropped.
   */
  private void clean(CachedFamily family, int slab, int keepBytes, boolean referencedOnly) {
    Slabs slabs = family.slabs;
    byte[] array = slabs.slab(slab);
    long version = slabs.version(slab);
    long end = Bytes.ARRAY + slabs.used(slab);
    slabs.giveBack(slab);
    boolean dropped = false;
    int kept = 0;
    for (long at = Bytes.ARRAY; at < end; at += Entry.size(array, at)) {
      byte state = Entry.state(array, at);
      if (state == Entry.DEAD || state == Entry.MOVED) {
        continue;
      }
      int size = Entry.size(array, at);
      boolean wanted =
          (!referencedOnly || Entry.has(array, at, Entry.REFERENCED)) && kept + size <= keepBytes;
      if (wanted && move(family, slab, array, at, size, version)) {
        kept += size;
        continue;
      }
      if (family.complete) {
        // Only a compaction keeps the mark, and it found no room after all.
        base.loseCompleteness(family);
      }
      dropped = true;
      family.forget(array, at);
      family.table.remove(Entry.hash(array, at), Slabs.address(slab, at));
    }
    slabs.drop(slab);
    if (dropped && version > applied) {
      base.require(version);
    }
  }

  private static boolean move(
      CachedFamily family, int slab, byte[] array, long at, int size, long version) {
    int to = family.slabs.allocate(size);
    if (to == 0) {
      return false;
    }
    byte[] target = family.slab(to);
    long targetAt = Slabs.at(to);
    Bytes.copy(array, at, target, targetAt, size);
    Entry.lower(target, targetAt, Entry.REFERENCED);
    family.slabs.touch(Slabs.slabOf(to), version);
    family.table.move(Entry.hash(array, at), Slabs.address(slab, at), to);
    if (family.order != null) {
      family.order.move(to);
    }
    return true;
  }

  /** Moves live entries together where much of the slabs is dead. For the end of a commit. */
  void compact() {
    busy = true;
    try {
      compactFamilies();
    } finally {
      busy = false;
    }
  }

  private void compactFamilies() {
    for (int i = 0; i < base.end(); i++) {
      CachedFamily family = base.isDefined(i) ? base.family(i) : null;
      while (family != null
          && family.slabs.deadBytes()
              > Math.max(Slabs.MAX_BYTES / 4, family.slabs.usedBytes() / 4)) {
        int slab = emptiest(family.slabs);
        if (slab == 0) {
          break;
        }
        clean(family, slab, Integer.MAX_VALUE, false);
      }
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
