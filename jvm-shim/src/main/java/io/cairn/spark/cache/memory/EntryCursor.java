package io.cairn.spark.cache.memory;

import io.cairn.spark.bytes.Bytes;

/**
 * Iterates over the entries of a map, slab by slab; skips those that are dead or have moved.
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

  public boolean next() {
    while (true) {
      while (next < end) {
        at = next;
        next += Entry.size(slab, at);
        byte state = Entry.state(slab, at);
        if (state != Entry.DEAD && state != Entry.MOVED) {
          return true;
        }
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

  /** Address of the current entry. */
  public int address() {
    return Slabs.address(number, at);
  }
}
