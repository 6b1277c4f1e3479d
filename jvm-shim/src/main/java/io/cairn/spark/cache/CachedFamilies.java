package io.cairn.spark.cache;

import io.cairn.spark.cache.memory.MemoryAccount;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;

/**
 * The column families of a committed cache, and the version of their entries.
 *
 * <p>INVARIANT: if the engine's database may lack the last committed write of a key, the key is
 * cached, or its write belongs to a version up to {@link #requireApplied}. Every request to the
 * engine contains that version, so the engine answers correctly for every key that is not cached.
 */
final class CachedFamilies {
  /** RocksDB's keys begin with the id: FF FF is above those of all families. */
  private static final int MAX_ID = 0xfffe;

  /** With fewer rows an average of their sizes says little. */
  private static final int MIN_AVERAGE_COUNT = 64;

  /** A slot in a table that is half full, and one in an order that is three quarters full. */
  private static final int INDEX_BYTES = 24;

  /** An entry with a short key and no value, as those of absent keys. */
  private static final int MIN_ENTRY_BYTES = 40;

  private final MemoryAccount account;
  private final List<CachedFamily> all = new ArrayList<>();
  private CachedFamily[] byId = new CachedFamily[0];
  private long requireApplied;

  /** A family that was never defined has no committed key. */
  private boolean areUnknownEmpty;

  private long version = -1;
  private String checkpointId;
  private long appliedThrough;
  private long lostRefills;

  CachedFamilies(MemoryAccount account) {
    this.account = account;
  }

  /** Version of the entries; -1 before the first {@link #reset}. */
  long version() {
    return version;
  }

  /** Checkpoint id of the version; may be null. */
  String checkpointId() {
    return checkpointId;
  }

  /** From now on entries belong to the next version. */
  void advance(long newVersion, String newCheckpointId) {
    version = newVersion;
    checkpointId = newCheckpointId;
  }

  /** Version up to which the engine had applied deltas at its last answer. */
  long appliedThrough() {
    return appliedThrough;
  }

  /** Notes what an answer of the engine says; 0: a session has had none yet. */
  void noteApplied(long through) {
    // It does not fall within one lineage: a reload ends above the version of the entries.
    appliedThrough = Math.max(appliedThrough, through);
  }

  /** Requires that the engine has applied this version before it answers. */
  void require(long atLeast) {
    requireApplied = Math.max(requireApplied, atLeast);
  }

  /**
   * Version that the engine must have applied before it answers for keys of a family: a complete
   * family does not remember its deleted keys, and a spilled append needs the committed list, which
   * may be only in the cache.
   */
  long requireFor(CachedFamily family) {
    return family.isComplete || family.hasSpilledWrites ? version : requireApplied;
  }

  List<CachedFamily> all() {
    return all;
  }

  CachedFamily get(int id) {
    CachedFamily found = id >= 0 && id < byId.length ? byId[id] : null;
    if (found == null) {
      throw new IllegalArgumentException(
          "[CAIRN_INTERNAL] column family " + id + " is not defined in the state cache");
    }
    return found;
  }

  boolean isDefined(int id) {
    return id < byId.length && byId[id] != null;
  }

  /** Makes a family known. Idempotent; another kind of family replaces the former one. */
  CachedFamily define(int id, boolean isOrdered, boolean isMulti) {
    if (id < 0 || id > MAX_ID) {
      throw new IllegalArgumentException(
          "[CAIRN_INTERNAL] column family id " + id + " is not in 0.." + MAX_ID);
    }
    CachedFamily found = isDefined(id) ? byId[id] : null;
    if (found != null && found.isOrdered == isOrdered && found.isMulti == isMulti) {
      return found;
    }
    boolean isEmpty =
        found == null ? areUnknownEmpty : found.isComplete && found.presentCount() == 0;
    remove(id);
    if (id >= byId.length) {
      byId = Arrays.copyOf(byId, Math.max(id + 1, Math.min(byId.length * 2, MAX_ID + 1)));
    }
    CachedFamily family = new CachedFamily(account, id, isOrdered, isMulti);
    if (isEmpty) {
      family.markComplete();
    }
    byId[id] = family;
    all.add(family);
    return family;
  }

  /** Removes all other families. */
  void keep(Set<Integer> ids) {
    for (CachedFamily family : List.copyOf(all)) {
      if (!ids.contains(family.id)) {
        remove(family.id);
      }
    }
  }

  void remove(int id) {
    if (isDefined(id)) {
      CachedFamily removed = byId[id];
      require(removed.count() > 0 ? version : 0);
      removed.clear();
      byId[id] = null;
      all.remove(removed);
    }
  }

  /**
   * Empties all families and sets their version. {@code isEmpty}: that version has no key, so every
   * family is complete.
   */
  void reset(long newVersion, String newCheckpointId, boolean isEmpty) {
    advance(newVersion, newCheckpointId);
    requireApplied = isEmpty ? 0 : Math.max(0, newVersion);
    areUnknownEmpty = isEmpty;
    appliedThrough = 0;
    for (CachedFamily family : all) {
      family.clear();
      if (isEmpty) {
        family.markComplete();
      }
    }
  }

  /**
   * Marks a family as incomplete: it has keys that are not cached. The deletes of a complete family
   * are not cached either, so the engine must have applied them. A refill of the family is lost.
   */
  void loseCompleteness(CachedFamily family) {
    if (family.isComplete) {
      require(version);
    }
    lostRefills += family.isRefilling() ? 1 : 0;
    family.loseKeys();
  }

  /** Refills of families that ended before the family was complete. */
  long lostRefills() {
    return lostRefills;
  }

  /** Rows of all families. */
  long presentCount() {
    long count = 0;
    for (CachedFamily family : all) {
      count += family.presentCount();
    }
    return count;
  }

  /** Bytes of a row with its part of the indexes, on average; 0: too few to know. */
  long bytesPerRow() {
    long bytes = 0;
    long count = 0;
    for (CachedFamily family : all) {
      long absentCount = family.count() - family.presentCount();
      bytes += family.slabs.liveBytes() - absentCount * MIN_ENTRY_BYTES;
      count += family.presentCount();
    }
    return count < MIN_AVERAGE_COUNT ? 0 : bytes / count + INDEX_BYTES;
  }

  /** Whether the cache has all keys of the version. Without a family that is not known. */
  boolean areComplete() {
    boolean areComplete = areUnknownEmpty || !all.isEmpty();
    for (CachedFamily family : all) {
      areComplete &= family.isComplete;
    }
    return areComplete;
  }
}
