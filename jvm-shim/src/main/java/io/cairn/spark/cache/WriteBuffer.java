package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.WriteBlock;
import java.util.Arrays;

/**
 * The writes of one session, or since its last spill: one entry a key, holding its op and what is
 * known of the committed key.
 *
 * <p>PUT and DELETE replace whatever stood there; APPEND after PUT stays PUT, after DELETE becomes
 * PUT, after APPEND stays APPEND. A write that finds no room returns false and changes nothing.
 */
final class WriteBuffer implements MemoryAccount {
  private final StateCache cache;
  private final EngineSource source;
  private final long shareBytes;
  private EntryMap[] families = new EntryMap[0];
  private long bytes;

  /** Raised by every scan that opens: entries of lower epochs stood there before it. */
  private int epoch;

  /** Open scans that walk it; it outlives its spill for them. */
  private int pins;

  private boolean retired;

  /** The next entry may exceed the budget: nothing else can go. */
  boolean unbounded;

  WriteBuffer(StateCache cache, EngineSource source, long shareBytes) {
    this.cache = cache;
    this.source = source;
    this.shareBytes = shareBytes;
  }

  @Override
  public boolean take(long wanted) {
    boolean taken =
        bytes > 0 && bytes + wanted > shareBytes ? cache.takeFree(wanted) : cache.take(wanted);
    if (!taken && (unbounded || bytes + wanted <= cache.budget().guaranteedBytes())) {
      cache.takeAnyway(wanted);
      taken = true;
    }
    bytes += taken ? wanted : 0;
    return taken;
  }

  @Override
  public void give(long back) {
    bytes -= back;
    cache.give(back);
  }

  boolean isEmpty() {
    for (EntryMap map : families) {
      if (map != null && map.table.count() > 0) {
        return false;
      }
    }
    return true;
  }

  /** The family's writes, or null if there are none. */
  EntryMap family(int id) {
    return id < families.length ? families[id] : null;
  }

  int end() {
    return families.length;
  }

  private EntryMap made(CachedFamily family) {
    EntryMap map = family(family.id);
    if (map == null) {
      if (family.id >= families.length) {
        families = Arrays.copyOf(families, family.id + 1);
      }
      map = new EntryMap(this);
      if (family.ordered) {
        map.keepOrder();
      }
      families[family.id] = map;
    }
    return map;
  }

  boolean put(
      CachedFamily family,
      int hash,
      Object key,
      long keyOffset,
      int keyLength,
      Object value,
      long valueOffset,
      int length,
      boolean versioned) {
    int gap = versioned ? 1 : 0;
    requireFits(keyLength + (long) length + gap);
    EntryMap map = made(family);
    int valueLength = length + gap;
    int address = map.find(hash, key, keyOffset, keyLength);
    if (address == 0) {
      address =
          insert(map, family, hash, key, keyOffset, keyLength, Entry.capacityFor(valueLength));
    } else {
      int capacity = Entry.capacity(map.slab(address), Slabs.at(address));
      if (capacity < valueLength) {
        address = map.regrow(address, Entry.capacityFor(grown(capacity, valueLength)));
      }
    }
    if (address == 0) {
      return false;
    }
    byte[] slab = map.slab(address);
    long at = Slabs.at(address);
    long to = Entry.value(slab, at);
    if (versioned) {
      slab[(int) (to - Bytes.ARRAY)] = 0;
    }
    Bytes.copy(value, valueOffset, slab, to + gap, length);
    Entry.setValueLength(slab, at, valueLength);
    Entry.setState(slab, at, WriteBlock.PUT);
    return true;
  }

  boolean append(
      CachedFamily family,
      int hash,
      Object key,
      long keyOffset,
      int keyLength,
      Object value,
      long valueOffset,
      int length) {
    requireFits(keyLength + (long) length);
    EntryMap map = made(family);
    int address = map.find(hash, key, keyOffset, keyLength);
    byte state = WriteBlock.APPEND;
    int before = 0;
    if (address == 0) {
      address = insert(map, family, hash, key, keyOffset, keyLength, Entry.capacityFor(length));
    } else {
      byte[] old = map.slab(address);
      long oldAt = Slabs.at(address);
      boolean deleted = Entry.state(old, oldAt) == WriteBlock.DELETE;
      state = deleted ? WriteBlock.PUT : Entry.state(old, oldAt);
      before = deleted ? 0 : Entry.valueLength(old, oldAt);
      requireFits(keyLength + (long) before + length);
      int needed = before + length;
      int capacity = Entry.capacity(old, oldAt);
      if (capacity < needed) {
        address = map.regrow(address, Entry.capacityFor(grown(capacity, needed)));
        if (address != 0) {
          byte[] slab = map.slab(address);
          Bytes.copy(
              old, Entry.value(old, oldAt), slab, Entry.value(slab, Slabs.at(address)), before);
        }
      }
    }
    if (address == 0) {
      return false;
    }
    byte[] slab = map.slab(address);
    long at = Slabs.at(address);
    Bytes.copy(value, valueOffset, slab, Entry.value(slab, at) + before, length);
    Entry.setValueLength(slab, at, before + length);
    Entry.setState(slab, at, state);
    return true;
  }

  /** What no frame could carry is refused at once. */
  private void requireFits(long rowBytes) {
    if (rowBytes > WriteBlock.MAX_ROW_BYTES) {
      throw source.rowTooLarge(rowBytes);
    }
  }

  boolean remove(CachedFamily family, int hash, Object key, long keyOffset, int keyLength) {
    EntryMap map = family(family.id);
    int address = map == null ? 0 : map.find(hash, key, keyOffset, keyLength);
    if (address == 0) {
      if (!family.spilled
          && presence(family, hash, key, keyOffset, keyLength) == WriteBlock.MISSING) {
        return true;
      }
      map = made(family);
      address = insert(map, family, hash, key, keyOffset, keyLength, Entry.capacityFor(0));
      if (address == 0) {
        return false;
      }
    }
    Entry.setState(map.slab(address), Slabs.at(address), WriteBlock.DELETE);
    return true;
  }

  private int insert(
      EntryMap map,
      CachedFamily family,
      int hash,
      Object key,
      long keyOffset,
      int keyLength,
      int capacity) {
    byte presence = presence(family, hash, key, keyOffset, keyLength);
    int address = map.insert(hash, key, keyOffset, keyLength, capacity);
    if (address != 0) {
      byte[] slab = map.slab(address);
      long at = Slabs.at(address);
      Entry.setEpoch(slab, at, epoch);
      Entry.setPresence(slab, at, presence);
    }
    return address;
  }

  private static byte presence(
      CachedFamily family, int hash, Object key, long keyOffset, int keyLength) {
    int address = family.find(hash, key, keyOffset, keyLength);
    if (address == 0) {
      return family.complete ? WriteBlock.MISSING : WriteBlock.UNKNOWN;
    }
    return Entry.state(family.slab(address), Slabs.at(address)) == WriteBlock.DELETE
        ? WriteBlock.MISSING
        : WriteBlock.PRESENT;
  }

  /** A capacity that makes repeated growth cheap. */
  private static int grown(int capacity, int needed) {
    return (int)
        Math.min(Integer.MAX_VALUE - 128, Math.max(needed, capacity + (long) capacity / 2));
  }

  /** A scan opens: the epoch below which entries stood there before it. */
  int open() {
    pins++;
    return ++epoch;
  }

  /** Its writes are with the engine already. */
  boolean isRetired() {
    return retired;
  }

  void unpin() {
    pins--;
    if (pins == 0 && retired) {
      clear();
    }
  }

  /** Nothing of it is left. */
  boolean isFree() {
    return retired && pins == 0;
  }

  /** The session needs it no more; open scans may. */
  void retire() {
    retired = true;
    if (pins == 0) {
      clear();
    }
  }

  void dropFamily(int id) {
    if (family(id) != null) {
      families[id].clear();
      families[id] = null;
    }
  }

  /** Frees everything at once. */
  void clear() {
    for (int i = 0; i < families.length; i++) {
      dropFamily(i);
    }
  }

  /** Hands all writes to a writer, family by family. */
  void addTo(BlockWriter writer, CommittedCache base) {
    for (int i = 0; i < families.length; i++) {
      if (families[i] != null) {
        writer.add(i, families[i].slabs, base.family(i).spilled);
      }
    }
  }

  /**
   * Lets the writes, which were spilled just now, hide the committed entries of their keys until
   * the session ends.
   */
  void shadow(CommittedCache base) {
    for (int i = 0; i < families.length; i++) {
      EntryMap map = families[i];
      for (int s = 1; map != null && s < map.slabs.end(); s++) {
        if (map.slabs.slab(s) != null) {
          base.family(i).spilled = true;
          shadow(base.family(i), map.slabs.slab(s), Bytes.ARRAY + map.slabs.used(s));
        }
      }
    }
  }

  private static void shadow(CachedFamily family, byte[] slab, long end) {
    for (long at = Bytes.ARRAY; at < end; at += Entry.size(slab, at)) {
      byte state = Entry.state(slab, at);
      if (state != Entry.DEAD && state != Entry.MOVED) {
        int address =
            family.find(Entry.hash(slab, at), slab, Entry.key(at), Entry.keyLength(slab, at));
        if (address != 0) {
          family.shadow(address);
        }
      }
    }
  }

  /**
   * Folds all writes into the base, which stands at their version already, freeing slab after slab.
   */
  void fold(CommittedCache base) {
    for (int i = 0; i < families.length; i++) {
      EntryMap map = families[i];
      if (map == null) {
        continue;
      }
      map.dropOrder();
      for (int s = 1; s < map.slabs.end(); s++) {
        if (map.slabs.slab(s) != null) {
          fold(base, base.family(i), map.slabs.slab(s), Bytes.ARRAY + map.slabs.used(s));
          map.slabs.free(s);
        }
      }
      dropFamily(i);
    }
  }

  private static void fold(CommittedCache base, CachedFamily family, byte[] slab, long end) {
    for (long at = Bytes.ARRAY; at < end; at += Entry.size(slab, at)) {
      byte state = Entry.state(slab, at);
      int hash = Entry.hash(slab, at);
      int keyLength = Entry.keyLength(slab, at);
      if (state == WriteBlock.PUT) {
        base.put(
            family,
            hash,
            slab,
            Entry.key(at),
            keyLength,
            Entry.value(slab, at),
            Entry.valueLength(slab, at));
      } else if (state == WriteBlock.DELETE) {
        base.delete(family, hash, slab, Entry.key(at), keyLength);
      } else if (state == WriteBlock.APPEND) {
        base.append(
            family,
            hash,
            slab,
            Entry.key(at),
            keyLength,
            Entry.value(slab, at),
            Entry.valueLength(slab, at));
      }
    }
  }
}
