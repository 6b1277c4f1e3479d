package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.WriteBlock;
import java.util.Arrays;
import org.apache.spark.unsafe.Platform;

/**
 * The committed entries of a store, stamped with the version they belong to.
 *
 * <p>Invariant: a key whose last committed write the engine's database may lack is either here or
 * belongs to a version up to {@link #requireApplied}, which every request to the engine carries; so
 * what the base cannot answer, the engine answers rightly.
 */
final class CommittedCache {
  private final MemoryAccount room;
  private CachedFamily[] families = new CachedFamily[0];
  private long requireApplied;

  long version = -1;
  String id;

  /** Every family that was never defined has no committed key. */
  private boolean unknownFamiliesAreEmpty;

  private final Eviction eviction = new Eviction(this);

  CommittedCache(MemoryAccount room) {
    this.room = room;
  }

  Eviction eviction() {
    return eviction;
  }

  long requireApplied() {
    return requireApplied;
  }

  void require(long atLeast) {
    requireApplied = Math.max(requireApplied, atLeast);
  }

  CachedFamily family(int family) {
    CachedFamily found = family >= 0 && family < families.length ? families[family] : null;
    if (found == null) {
      throw new IllegalArgumentException(
          "[CAIRN_INTERNAL] column family " + family + " was not defined in the state cache");
    }
    return found;
  }

  boolean isDefined(int family) {
    return family < families.length && families[family] != null;
  }

  /** One past the highest id ever defined. */
  int end() {
    return families.length;
  }

  CachedFamily define(int family, boolean ordered, boolean multi) {
    if (family < 0 || family > 0xffff) {
      throw new IllegalArgumentException(
          "[CAIRN_INTERNAL] column family id " + family + " is not in 0..65535");
    }
    if (family >= families.length) {
      families =
          Arrays.copyOf(families, Math.max(family + 1, Math.min(families.length * 2, 0x10000)));
    }
    CachedFamily found = families[family];
    if (found != null && found.ordered == ordered && found.multi == multi) {
      return found;
    }
    CachedFamily made = new CachedFamily(room, family, ordered, multi);
    boolean empty =
        found == null ? unknownFamiliesAreEmpty : found.complete && found.present() == 0;
    if (found != null) {
      remove(family);
    }
    if (empty) {
      made.markComplete();
    }
    families[family] = made;
    return made;
  }

  void remove(int family) {
    if (isDefined(family)) {
      require(families[family].table.count() > 0 ? version : 0);
      families[family].clear();
      families[family] = null;
    }
  }

  /** Empties all families and stamps the base anew. */
  void reset(long newVersion, String newId, boolean empty) {
    version = newVersion;
    id = newId;
    requireApplied = empty ? 0 : Math.max(0, newVersion);
    unknownFamiliesAreEmpty = empty;
    eviction.applied = 0;
    for (CachedFamily family : families) {
      if (family != null) {
        family.clear();
        if (empty) {
          family.markComplete();
        }
      }
    }
  }

  void clear() {
    reset(-1, null, false);
  }

  /** Enters what the engine answered, for later reads. 0: no room, or the key is here already. */
  int fill(
      CachedFamily family, int hash, byte[] key, byte[] data, int valueOffset, int valueLength) {
    if (family.complete || family.find(hash, key, Bytes.ARRAY, key.length) != 0) {
      return 0;
    }
    boolean present = valueLength >= 0;
    return add(
        family,
        hash,
        key,
        Bytes.ARRAY,
        key.length,
        data,
        Bytes.ARRAY + valueOffset,
        Math.max(0, valueLength),
        present);
  }

  /** Enters a row of a bulk load. False: no room. */
  boolean load(
      CachedFamily family,
      int hash,
      byte[] data,
      long key,
      int keyLength,
      long value,
      int valueLength) {
    return family.find(hash, data, key, keyLength) != 0
        || add(family, hash, data, key, keyLength, data, value, valueLength, true) != 0;
  }

  private int add(
      CachedFamily family,
      int hash,
      Object key,
      long keyOffset,
      int keyLength,
      Object value,
      long valueOffset,
      int valueLength,
      boolean present) {
    int address = family.insert(hash, key, keyOffset, keyLength, Entry.capacityFor(valueLength));
    if (address == 0) {
      return 0;
    }
    byte[] slab = family.slab(address);
    long at = Slabs.at(address);
    Entry.setState(slab, at, present ? WriteBlock.PUT : WriteBlock.DELETE);
    if (present) {
      Entry.setValueLength(slab, at, valueLength);
      Bytes.copy(value, valueOffset, slab, Entry.value(slab, at), valueLength);
    } else {
      family.negatives++;
    }
    return address;
  }

  /** Folds a put of the version that the base is stamped with. */
  void put(
      CachedFamily family,
      int hash,
      byte[] source,
      long key,
      int keyLength,
      long value,
      int valueLength) {
    int address = family.find(hash, source, key, keyLength);
    if (address != 0) {
      byte[] slab = family.slab(address);
      long at = Slabs.at(address);
      if (valueLength <= Entry.capacity(slab, at)) {
        makePresent(family, slab, at);
        Entry.setValueLength(slab, at, valueLength);
        Bytes.copy(source, value, slab, Entry.value(slab, at), valueLength);
        family.slabs.touch(Slabs.slabOf(address), version);
        return;
      }
      family.remove(address);
    }
    address = add(family, hash, source, key, keyLength, source, value, valueLength, true);
    settle(family, address);
  }

  private static void makePresent(CachedFamily family, byte[] slab, long at) {
    if (Entry.state(slab, at) == WriteBlock.DELETE) {
      family.negatives--;
      Entry.setState(slab, at, WriteBlock.PUT);
      Entry.setValueLength(slab, at, 0);
    }
    if (Entry.has(slab, at, Entry.SHADOWED)) {
      family.shadowed--;
      Entry.lower(slab, at, Entry.SHADOWED);
    }
  }

  /** Notes the version of an entry just folded, or that there was no room for it. */
  private void settle(CachedFamily family, int address) {
    if (address != 0) {
      family.slabs.touch(Slabs.slabOf(address), version);
    } else {
      require(version);
      loseCompleteness(family);
    }
  }

  /** Folds an append. Of a list that is not here nothing is kept. */
  void append(
      CachedFamily family,
      int hash,
      byte[] source,
      long key,
      int keyLength,
      long value,
      int valueLength) {
    int address = family.find(hash, source, key, keyLength);
    if (address == 0) {
      if (family.complete) {
        put(family, hash, source, key, keyLength, value, valueLength);
      } else {
        require(version);
      }
      return;
    }
    byte[] slab = family.slab(address);
    long at = Slabs.at(address);
    if (Entry.has(slab, at, Entry.SHADOWED)) {
      family.remove(address);
      require(version);
      loseCompleteness(family);
      return;
    }
    int before = Entry.state(slab, at) == WriteBlock.DELETE ? 0 : Entry.valueLength(slab, at);
    long length = (long) before + valueLength;
    if (length > Entry.capacity(slab, at)) {
      regrowList(family, address, before, source, value, valueLength);
      return;
    }
    makePresent(family, slab, at);
    Bytes.copy(source, value, slab, Entry.value(slab, at) + before, valueLength);
    Entry.setValueLength(slab, at, (int) length);
    family.slabs.touch(Slabs.slabOf(address), version);
  }

  private void regrowList(
      CachedFamily family, int address, int before, byte[] source, long value, int valueLength) {
    byte[] old = family.slab(address);
    long oldAt = Slabs.at(address);
    int hash = Entry.hash(old, oldAt);
    int length = Math.addExact(before, valueLength);
    int capacity =
        Entry.capacityFor((int) Math.min(Integer.MAX_VALUE - 128, length + (long) length / 2));
    family.remove(address);
    int moved = family.insert(hash, old, Entry.key(oldAt), Entry.keyLength(old, oldAt), capacity);
    if (moved != 0) {
      byte[] slab = family.slab(moved);
      long at = Slabs.at(moved);
      Entry.setState(slab, at, WriteBlock.PUT);
      Entry.setValueLength(slab, at, length);
      long to = Entry.value(slab, at);
      Platform.copyMemory(old, Entry.value(old, oldAt), slab, to, before);
      Platform.copyMemory(source, value, slab, to + before, valueLength);
    }
    settle(family, moved);
  }

  /** Folds a delete. A complete family forgets the key, another one remembers that it is gone. */
  void delete(CachedFamily family, int hash, byte[] source, long key, int keyLength) {
    int address = family.find(hash, source, key, keyLength);
    if (address != 0) {
      if (family.complete) {
        family.remove(address);
        return;
      }
      byte[] slab = family.slab(address);
      long at = Slabs.at(address);
      makePresent(family, slab, at);
      Entry.setState(slab, at, WriteBlock.DELETE);
      family.negatives++;
      family.slabs.touch(Slabs.slabOf(address), version);
    } else if (!family.complete) {
      settle(family, add(family, hash, source, key, keyLength, source, key, 0, false));
    }
  }

  /**
   * The family has keys that are not here. What it deleted is remembered nowhere, so the engine
   * must have applied it.
   */
  void loseCompleteness(CachedFamily family) {
    if (family.complete) {
      family.complete = false;
      require(version);
    }
    family.dropOrder();
  }

  /**
   * A session that spilled commits: what it spilled is not here, so the engine must have applied
   * this version before it answers.
   */
  void yieldSpilled() {
    for (CachedFamily family : families) {
      if (family != null && family.spilled) {
        require(version);
        loseCompleteness(family);
      }
    }
  }

  /** The session's scans have ended, closed or not. */
  void endWalks() {
    for (CachedFamily family : families) {
      if (family != null) {
        family.walkers = 0;
      }
    }
  }

  /** As {@link CachedFamily#endShadows}, of every family. */
  void endShadows(boolean remove) {
    for (CachedFamily family : families) {
      if (family != null) {
        family.endShadows(remove);
      }
    }
  }

  long bytes() {
    long bytes = 0;
    for (CachedFamily family : families) {
      bytes += family == null ? 0 : family.bytes();
    }
    return bytes;
  }
}
