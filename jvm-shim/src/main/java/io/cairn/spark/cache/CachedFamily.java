package io.cairn.spark.cache;

import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.WriteBlock;

/**
 * The cached committed entries of one column family, and what is known about its other keys.
 *
 * <p>States of an entry: PUT is a committed row, DELETE a key that is known to be absent.
 */
final class CachedFamily extends EntryMap {
  final int id;
  final boolean isOrdered;
  final boolean isMulti;

  /** The cache has all keys of the family at the cached version; other keys do not exist. */
  boolean isComplete;

  /** The open session has spilled writes of this family: the engine has them. */
  boolean isSpilled;

  /** Keys that the last session wrote. */
  int lastWriteCount;

  /** The slab at which the next eviction begins its search. */
  int nextVictim = 1;

  private int shadowedCount;
  private int absentCount;

  CachedFamily(MemoryAccount account, int id, boolean isOrdered, boolean isMulti) {
    super(account);
    this.id = id;
    this.isOrdered = isOrdered;
    this.isMulti = isMulti;
  }

  long presentCount() {
    return count() - absentCount;
  }

  /** Whether a key that is not cached does not exist. */
  boolean knowsAbsentKeys() {
    return isComplete && !isSpilled;
  }

  void markComplete() {
    isComplete = true;
    if (isOrdered) {
      keepOrder();
    }
  }

  /** Turns an entry, new or not, into a row. The caller sets its value. */
  void markPresent(byte[] slab, long at) {
    byte state = Entry.state(slab, at);
    if (state != WriteBlock.PUT) {
      absentCount -= state == WriteBlock.DELETE ? 1 : 0;
      Entry.setState(slab, at, WriteBlock.PUT);
      Entry.setValueLength(slab, at, 0);
    }
    unshadow(slab, at);
  }

  /** Turns an entry, new or not, into a key that is known to be absent. */
  void markAbsent(byte[] slab, long at) {
    if (Entry.state(slab, at) != WriteBlock.DELETE) {
      absentCount++;
      Entry.setState(slab, at, WriteBlock.DELETE);
    }
    unshadow(slab, at);
  }

  @Override
  public void remove(int address) {
    forget(slab(address), Slabs.at(address));
    super.remove(address);
  }

  /** Removes an entry from the counts. */
  void forget(byte[] slab, long at) {
    if (Entry.state(slab, at) == WriteBlock.DELETE) {
      absentCount--;
    }
    unshadow(slab, at);
  }

  /** Hides an entry from the open session, which has spilled a newer write of its key. */
  void shadow(byte[] slab, long at) {
    if (!Entry.has(slab, at, Entry.SHADOWED)) {
      Entry.raise(slab, at, Entry.SHADOWED);
      shadowedCount++;
    }
  }

  private void unshadow(byte[] slab, long at) {
    if (Entry.has(slab, at, Entry.SHADOWED)) {
      Entry.lower(slab, at, Entry.SHADOWED);
      shadowedCount--;
    }
  }

  /**
   * Handles the entries that the session has shadowed, at its end. {@code removes}: it has
   * committed, so they are outdated and removed; otherwise they are visible again.
   */
  void endShadows(boolean removes) {
    for (EntryCursor entries = cursor(false); shadowedCount > 0 && entries.next(); ) {
      if (Entry.has(entries.slab, entries.at, Entry.SHADOWED)) {
        if (removes) {
          remove(entries.address());
        } else {
          unshadow(entries.slab, entries.at);
        }
      }
    }
    isSpilled = false;
  }

  @Override
  public void clear() {
    super.clear();
    isComplete = false;
    isSpilled = false;
    openScans = 0;
    nextVictim = 1;
    shadowedCount = 0;
    absentCount = 0;
  }
}
