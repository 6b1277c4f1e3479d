package io.cairn.spark.cache;

import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.Slabs;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/** The writes of one session since its last spill, by family, and how many it has spilled. */
final class WritesByFamily {
  private final CachedFamilies families;
  private final MemoryAccount account;

  /** Null: the family has no writes. */
  private Writes[] byId = new Writes[0];

  /** By family: writes that were spilled, as {@link #expectedRows} counts them. */
  private final Map<Integer, Long> spilledRows = new HashMap<>();

  WritesByFamily(CachedFamilies families, MemoryAccount account) {
    this.families = families;
    this.account = account;
  }

  /** The writes of a family; null if there are none. */
  Writes get(CachedFamily family) {
    return family.id < byId.length ? byId[family.id] : null;
  }

  Writes getOrAdd(CachedFamily family) {
    Writes found = get(family);
    return found == null ? add(family) : found;
  }

  private Writes add(CachedFamily family) {
    if (family.id >= byId.length) {
      byId = Arrays.copyOf(byId, family.id + 1);
    }
    Writes added = new Writes(account);
    added.expect(family.lastWriteCount);
    if (family.isOrdered) {
      added.keepOrder();
    }
    byId[family.id] = added;
    return added;
  }

  /** Accounted bytes. */
  long bytes() {
    long bytes = 0;
    for (Writes writes : byId) {
      bytes += writes == null ? 0 : writes.bytes();
    }
    return bytes;
  }

  boolean isEmpty() {
    for (Writes writes : byId) {
      if (writes != null && writes.count() > 0) {
        return false;
      }
    }
    return true;
  }

  /** Sends all writes. */
  void send(BlockWriter writer) {
    for (int id = 0; id < byId.length; id++) {
      if (byId[id] != null) {
        boolean all = families.get(id).hasSpilledWrites;
        for (EntryCursor entries = byId[id].cursor(false); entries.next(); ) {
          writer.add(id, entries.slab, entries.at, all);
        }
      }
    }
    writer.flush();
  }

  /** Makes the answers to the keys that are spilled next outdated. */
  void outdate(Answers answers) {
    for (int id = 0; id < byId.length; id++) {
      if (byId[id] != null) {
        answers.noteSpill(families.get(id), byId[id]);
      }
    }
  }

  /** Drops all writes, which were spilled. Their committed entries are hidden until the end. */
  void dropSpilled() {
    for (int id = 0; id < byId.length; id++) {
      if (byId[id] != null) {
        spilledRows.merge(id, rowsOf(byId[id]), Long::sum);
        shadow(families.get(id), byId[id]);
        retire(id);
      }
    }
  }

  private static void shadow(CachedFamily family, Writes writes) {
    for (EntryCursor entries = writes.cursor(false); entries.next(); ) {
      family.hasSpilledWrites = true;
      int address = family.findSameKey(entries.slab, entries.at);
      if (address != 0) {
        family.shadow(family.slab(address), Slabs.at(address));
      }
    }
  }

  /**
   * The number of writes that the commit must have, except deletes of absent keys: those that were
   * spilled, and those that are here. Counted apart from what is sent, so that the engine can
   * compare both.
   */
  long expectedRows() {
    long rows = 0;
    for (long spilled : spilledRows.values()) {
      rows += spilled;
    }
    for (Writes writes : byId) {
      rows += writes == null ? 0 : rowsOf(writes);
    }
    return rows;
  }

  private static long rowsOf(Writes writes) {
    return writes.count() - writes.absentDeletes;
  }

  /** Drops all writes of a family, also those that were spilled. */
  void drop(int id) {
    spilledRows.remove(id);
    if (id < byId.length && byId[id] != null) {
      retire(id);
    }
  }

  /** Moves all writes into the committed cache. */
  void foldInto(Fold fold) {
    for (int id = 0; id < byId.length; id++) {
      if (byId[id] != null) {
        CachedFamily family = families.get(id);
        family.lastWriteCount = byId[id].count();
        fold.add(family, byId[id]);
        retire(id);
      }
    }
  }

  /** Drops all writes. */
  void clear() {
    for (int id = 0; id < byId.length; id++) {
      if (byId[id] != null) {
        retire(id);
      }
    }
  }

  private void retire(int id) {
    byId[id].retire();
    byId[id] = null;
  }
}
