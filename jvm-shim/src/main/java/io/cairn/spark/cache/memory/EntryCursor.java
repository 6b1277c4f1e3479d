package io.cairn.spark.cache.memory;

import io.cairn.spark.bytes.Bytes;

/**
 * Iterates over the entries of a map, slab by slab; skips those that are dead.
 *
 * <p>Entries may be removed meanwhile; those that are added meanwhile may be skipped.
 */
public final class EntryCursor {
  private final Slabs slabs;
  private final boolean frees;
  private int number;
  private long next;
  private long end;

  /** The current entry, after {@link #next} returned true. */
  public byte[] slab;

  public long at;

  EntryCursor(Slabs slabs, boolean frees) {
    this.slabs = slabs;
    this.frees = frees;
  }

  /** Moves to the next entry that is in the indexes. */
  public boolean next() {
    while (nextVersion()) {
      if (Entry.state(slab, at) > Entry.DEAD) {
        return true;
      }
    }
    return false;
  }

  /** As {@link #next}, but does not skip former versions, nor dead entries. */
  public boolean nextVersion() {
    while (true) {
      if (next < end) {
        at = next;
        next += Entry.size(slab, at);
        return true;
      }
      if (frees && slab != null) {
        slabs.free(number);
      }
      if (++number >= slabs.end()) {
        return false;
      }
      slab = slabs.slab(number);
      next = Bytes.ARRAY;
      end = slab == null ? next : Bytes.ARRAY + slabs.used(number);
    }
  }

  /** Whether an entry is the current one or comes before it. */
  public boolean hasPassed(int address) {
    int slabOf = Slabs.slabOf(address);
    return slabOf < number || slabOf == number && Slabs.at(address) <= at;
  }

  /** Address of the current entry. */
  public int address() {
    return Slabs.address(number, at);
  }
}
