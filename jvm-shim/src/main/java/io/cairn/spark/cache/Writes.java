package io.cairn.spark.cache;

import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.WriteBlock;

/**
 * The writes of one family. While scans are open, a write of a key whose entry one of them may see
 * replaces the entry, which becomes the former version of the new one. Otherwise it overwrites it.
 */
final class Writes extends EntryMap {
  /** Each scan that opens increments it, and sees the entries with a lower one. */
  int epoch;

  /** They were spilled or dropped: only open scans still read them. */
  private boolean isRetired;

  /** Deletes of keys that are not committed. */
  int absentDeletes;

  Writes(MemoryAccount account) {
    super(account);
  }

  /** Returns the epoch of the scan. */
  int openScan() {
    openScans++;
    return ++epoch;
  }

  void closeScan() {
    openScans--;
    freeIfUnused();
  }

  void retire() {
    isRetired = true;
    freeIfUnused();
  }

  private void freeIfUnused() {
    if (isRetired && openScans == 0) {
      clear();
    }
  }

  /** The version that must stay for open scans when an entry is written; 0: there is none. */
  int formerFor(int address) {
    byte[] slab = slab(address);
    long at = Slabs.at(address);
    return Entry.epoch(slab, at) < epoch ? address : Entry.former(slab, at);
  }

  /**
   * Replaces an entry by one with another capacity; the caller sets op and value.
   *
   * @param former see {@link #formerFor}
   */
  int replace(int address, int capacity, int former) {
    int newer = replace(address, capacity);
    Entry.setEpoch(slab(newer), Slabs.at(newer), epoch);
    if (former != 0) {
      Entry.setFormer(slab(newer), Slabs.at(newer), former);
    }
    if (former == address) {
      Entry.endVersion(slab(address), Slabs.at(address), epoch);
    } else {
      Entry.setState(slab(address), Slabs.at(address), Entry.DEAD);
    }
    return newer;
  }

  /** Sets the op of an entry; a new one has none yet. */
  void setOp(byte[] slab, long at, byte op) {
    if (Entry.presence(slab, at) == WriteBlock.MISSING) {
      absentDeletes += (op == WriteBlock.DELETE ? 1 : 0);
      absentDeletes -= (Entry.state(slab, at) == WriteBlock.DELETE ? 1 : 0);
    }
    Entry.setState(slab, at, op);
  }
}
