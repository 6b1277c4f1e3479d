package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.WriteBlock;

/** The committed entries of one family, and what is known about the rest of its keys. */
final class CachedFamily extends EntryMap {
  final int id;
  final boolean ordered;
  final boolean multi;

  /** All keys of the family at the stamped version are here; the others do not exist. */
  boolean complete;

  /**
   * The open session has spilled writes of this family: a key that is not here may be with the
   * engine.
   */
  boolean spilled;

  /** Entries that carry {@link Entry#SHADOWED}. */
  int shadowed;

  /** Open scans that walk these slabs: nothing here may move. */
  int walkers;

  /** Keys known to be absent. */
  int negatives;

  /** Where the eviction's clock stands. */
  int hand = 1;

  CachedFamily(MemoryAccount room, int id, boolean ordered, boolean multi) {
    super(room);
    this.id = id;
    this.ordered = ordered;
    this.multi = multi;
  }

  long present() {
    return table.count() - negatives;
  }

  /** Whether a key that is not here does not exist. */
  boolean knowsAbsent() {
    return complete && !spilled;
  }

  void markComplete() {
    complete = true;
    if (ordered) {
      keepOrder();
    }
  }

  /** Takes an entry out of table and order and forgets it. */
  void remove(int address) {
    byte[] slab = slabs.array(address);
    long at = Slabs.at(address);
    if (order != null) {
      order.remove(address);
    }
    table.remove(Entry.hash(slab, at), address);
    forget(slab, at);
    kill(address);
  }

  /** Takes an entry that leaves the table out of the counts. */
  void forget(byte[] slab, long at) {
    if (Entry.state(slab, at) == WriteBlock.DELETE) {
      negatives--;
    }
    if (Entry.has(slab, at, Entry.SHADOWED)) {
      shadowed--;
    }
  }

  void shadow(int address) {
    byte[] slab = slabs.array(address);
    long at = Slabs.at(address);
    if (!Entry.has(slab, at, Entry.SHADOWED)) {
      Entry.raise(slab, at, Entry.SHADOWED);
      shadowed++;
    }
  }

  /**
   * Ends the session's shadows. {@code remove}: it committed, so the shadowed entries are not what
   * is committed now.
   */
  void endShadows(boolean remove) {
    for (int s = 1; shadowed > 0 && s < slabs.end(); s++) {
      byte[] slab = slabs.slab(s);
      if (slab == null) {
        continue;
      }
      long end = Bytes.ARRAY + slabs.used(s);
      for (long at = Bytes.ARRAY; at < end; at += Entry.size(slab, at)) {
        byte state = Entry.state(slab, at);
        if (state == Entry.DEAD || state == Entry.MOVED || !Entry.has(slab, at, Entry.SHADOWED)) {
          continue;
        }
        if (!remove) {
          Entry.lower(slab, at, Entry.SHADOWED);
          shadowed--;
        } else {
          remove(Slabs.address(s, at));
          if (slabs.slab(s) == null) {
            break;
          }
        }
      }
    }
    spilled = false;
  }

  @Override
  void clear() {
    super.clear();
    complete = false;
    spilled = false;
    shadowed = 0;
    walkers = 0;
    negatives = 0;
    hand = 1;
  }
}
