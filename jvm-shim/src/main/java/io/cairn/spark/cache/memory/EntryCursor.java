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
  private final int[] from;
  private int number;
  private long next;
  private long end;

  /** The current entry, after {@link #next} returned true. */
  public byte[] slab;

  public long at;

  /**
   * @param from by slab: bytes at its start that are left out
   */
  EntryCursor(Slabs slabs, boolean frees, int[] from) {
    this.slabs = slabs;
    this.frees = frees;
    this.from = from;
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
      next = Bytes.ARRAY + (number < from.length ? from[number] : 0);
      end = slab == null ? next : Bytes.ARRAY + slabs.used(number);
    }
  }

  /** Address of the current entry. */
  public int address() {
    return Slabs.address(number, at);
  }
}
