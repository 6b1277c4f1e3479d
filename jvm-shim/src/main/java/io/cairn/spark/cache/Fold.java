package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.WriteBlock;

/**
 * Moves the writes of a committed session into the committed cache, which is then at its version.
 */
final class Fold {
  private final CommittedCache committed;
  private final CachedFamilies families;
  private final ByteSpan rowKey = new ByteSpan();
  private final ByteSpan rowValue = new ByteSpan();

  /** Begins the fold: from now on the entries are at the version of the writes. */
  Fold(CommittedCache committed, long version, String checkpointId) {
    this.committed = committed;
    families = committed.families;
    families.advance(version, checkpointId);
    committed.keys.noteApplied();
    for (CachedFamily family : families.all()) {
      if (family.hasSpilledWrites) {
        leaveToEngine(family);
      }
    }
  }

  /** Moves the writes of one family: frees each slab after its last write. */
  void add(CachedFamily family, EntryMap writes) {
    writes.dropOrder();
    for (EntryCursor entries = writes.cursor(true); entries.next(); ) {
      switch (Entry.state(entries.slab, entries.at)) {
        case WriteBlock.PUT -> put(family, entries.slab, entries.at);
        case WriteBlock.DELETE -> delete(family, entries.slab, entries.at);
        default -> append(family, entries.slab, entries.at);
      }
    }
  }

  /** Ends the fold: drops what spilled writes have replaced, and frees dead space. */
  void finish() {
    committed.endShadows(true);
    committed.eviction.compact();
  }

  /** Folds a PUT entry of the version that the families have. */
  private void put(CachedFamily family, byte[] written, long writtenAt) {
    int address = family.findSameKey(written, writtenAt);
    if (address != 0) {
      byte[] slab = family.slab(address);
      long at = Slabs.at(address);
      boolean fits = Entry.valueLength(written, writtenAt) <= Entry.capacity(slab, at);
      if (fits && family.isOrderedIfPresent(slab, at)) {
        family.markPresent(slab, at);
        Entry.copyValue(written, writtenAt, slab, at);
        noteVersion(family, address);
        return;
      }
      family.remove(address);
    }
    Entry.key(written, writtenAt, rowKey);
    Entry.value(written, writtenAt, rowValue);
    noteVersion(
        family,
        committed.eviction.insert(family, Entry.hash(written, writtenAt), rowKey, rowValue));
  }

  /** Notes the version of an entry that was just folded; 0: there was no memory for it. */
  private void noteVersion(CachedFamily family, int address) {
    if (address != 0) {
      family.slabs.noteVersion(Slabs.slabOf(address), families.version());
    } else {
      leaveToEngine(family);
    }
  }

  /** A write of this version is not cached: the engine must have applied it before it answers. */
  private void leaveToEngine(CachedFamily family) {
    families.require(families.version());
    families.loseCompleteness(family);
  }

  /** Folds an APPEND entry. A list that is not cached stays so. */
  private void append(CachedFamily family, byte[] written, long writtenAt) {
    int address = family.findSameKey(written, writtenAt);
    if (address == 0) {
      if (family.covers(written, writtenAt)) {
        put(family, written, writtenAt);
      } else {
        families.require(families.version());
      }
      return;
    }
    byte[] slab = family.slab(address);
    long at = Slabs.at(address);
    if (Entry.has(slab, at, Entry.SHADOWED)) {
      family.remove(address);
      leaveToEngine(family);
      return;
    }
    if (!family.isOrderedIfPresent(slab, at)) {
      put(family, written, writtenAt);
      return;
    }
    family.markPresent(slab, at);
    int before = Entry.valueLength(slab, at);
    int length = Math.addExact(before, Entry.valueLength(written, writtenAt));
    if (length > Entry.capacity(slab, at)) {
      address = growList(family, address, length);
      if (address == 0) {
        leaveToEngine(family);
        return;
      }
      slab = family.slab(address);
      at = Slabs.at(address);
    }
    Entry.value(written, writtenAt, rowValue);
    Bytes.copy(rowValue, slab, Entry.valueAt(slab, at) + before);
    Entry.setValueLength(slab, at, length);
    noteVersion(family, address);
  }

  /**
   * Moves a list to an entry with more capacity. 0: there is no memory, and the list is dropped.
   */
  private int growList(CachedFamily family, int address, int length) {
    byte[] old = family.slab(address);
    long oldAt = Slabs.at(address);
    int capacity =
        Entry.capacityFor((int) Math.min(Integer.MAX_VALUE - 128, length + (long) length / 2));
    family.remove(address);
    Entry.key(old, oldAt, rowKey);
    if (!committed.eviction.reserve(family, rowKey.length, capacity)) {
      return 0;
    }
    int moved = family.insert(Entry.hash(old, oldAt), rowKey, capacity);
    family.markPresent(family.slab(moved), Slabs.at(moved));
    Entry.copyValue(old, oldAt, family.slab(moved), Slabs.at(moved));
    return moved;
  }

  /**
   * Folds a DELETE entry. A complete family forgets the key; an incomplete one notes its absence.
   */
  private void delete(CachedFamily family, byte[] written, long writtenAt) {
    int address = family.findSameKey(written, writtenAt);
    if (address == 0) {
      if (!family.isComplete) {
        Entry.key(written, writtenAt, rowKey);
        noteVersion(
            family,
            committed.eviction.insert(family, Entry.hash(written, writtenAt), rowKey, null));
      }
    } else if (family.isComplete) {
      family.remove(address);
    } else {
      family.markAbsent(family.slab(address), Slabs.at(address));
      noteVersion(family, address);
    }
  }
}
