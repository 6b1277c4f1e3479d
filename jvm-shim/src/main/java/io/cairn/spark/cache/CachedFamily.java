package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.WriteBlock;

/**
 * The cached committed entries of one column family, and what is known about its other keys.
 *
 * <p>States of an entry: PUT is a committed row, DELETE a key that is known to be absent. A
 * complete family has absent keys only while the open session has spilled.
 */
final class CachedFamily extends EntryMap {
  final int id;
  final boolean isOrdered;
  final boolean isMulti;

  /** The cache has all keys of the family at the cached version; other keys do not exist. */
  boolean isComplete;

  /** The open session has spilled writes of this family: the engine has them. */
  boolean hasSpilledWrites;

  /** Keys that the last session wrote. */
  int lastWriteCount;

  /** Ranges that a request should have at most, so that its reply answers all. */
  int rangeLimit = Integer.MAX_VALUE;

  /** The slab at which the next eviction begins its search. */
  int nextVictim = 1;

  private int shadowedCount;
  private int absentCount;

  /**
   * A refill reads the family's rows, in pages. INVARIANT: the cache has all keys up to {@link
   * #refilledThrough}, and of an ordered family the order has all entries that were added since the
   * refill began.
   */
  private boolean isRefilling;

  /** The last key of the last page; null before the first page. */
  private byte[] refilledThrough;

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
    return isComplete && !hasSpilledWrites;
  }

  void markComplete() {
    isComplete = true;
    if (isOrdered) {
      keepOrder();
    }
  }

  boolean isRefilling() {
    return isRefilling;
  }

  /** Begins a refill. REQUIRES: the engine answers correctly for absent keys. */
  void startRefill() {
    dropAbsent();
    if (isOrdered) {
      startOrder();
    }
    isRefilling = true;
  }

  /** The key after which the refill continues; null: at the first key. */
  byte[] refilledThrough() {
    return refilledThrough;
  }

  /** Notes that the cache has all keys up to this one. */
  void noteRefilled(ByteSpan through) {
    refilledThrough = through.toArray();
  }

  /** Ends a refill after its last page: the cache has all keys. */
  void finishRefill() {
    dropAbsent();
    finishOrder();
    isRefilling = false;
    refilledThrough = null;
    markComplete();
  }

  /** Ends the family's completeness or its refill. */
  void loseKeys() {
    isComplete = false;
    isRefilling = false;
    refilledThrough = null;
    dropOrder();
  }

  /**
   * Whether the order has an entry, or its page will add it, if its key is present. Not if the key
   * was removed during a refill: the entry may have come before the order, and its page without it.
   */
  boolean isOrderedIfPresent(byte[] slab, long at) {
    return !isRefilling || Entry.state(slab, at) != WriteBlock.DELETE;
  }

  /** Whether the cache would have this key if it were committed. */
  boolean covers(byte[] slab, long at) {
    return isComplete
        || refilledThrough != null
            && Bytes.compare(
                    slab,
                    Entry.keyAt(at),
                    Entry.keyLength(slab, at),
                    refilledThrough,
                    Bytes.ARRAY,
                    refilledThrough.length)
                <= 0;
  }

  /** Removes the entries of absent keys. */
  private void dropAbsent() {
    for (EntryCursor entries = cursor(false); absentCount > 0 && entries.next(); ) {
      if (Entry.state(entries.slab, entries.at) == WriteBlock.DELETE) {
        remove(entries.address());
      }
    }
  }

  /**
   * Adds an entry for a key that has none; null value: the key is absent. REQUIRES: {@link
   * #bytesToInsert} are reserved.
   */
  int insert(int hash, ByteSpan key, ByteSpan value) {
    int address = insert(hash, key, Entry.capacityFor(value == null ? 0 : value.length));
    byte[] slab = slab(address);
    long at = Slabs.at(address);
    if (value == null) {
      markAbsent(slab, at);
    } else {
      markPresent(slab, at);
      Entry.setValue(slab, at, value);
    }
    return address;
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
   * committed, so they are outdated and removed; otherwise they are visible again. A family that is
   * still complete needs no absent keys any more.
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
    hasSpilledWrites = false;
    if (isComplete) {
      dropAbsent();
    }
  }

  @Override
  public void clear() {
    super.clear();
    loseKeys();
    hasSpilledWrites = false;
    nextVictim = 1;
    shadowedCount = 0;
    absentCount = 0;
  }
}
