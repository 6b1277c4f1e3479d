package io.cairn.spark.cache;

import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.protocol.WriteBlock;

/**
 * Moves the writes of a session into the committed cache, some at a time.
 *
 * <p>Most of the time of a fold is waiting for memory: each write is searched at a random place. So
 * the places of a group of writes are read first, one independent of the other, and then the writes
 * are folded.
 */
final class Fold {
  private static final int GROUP = 32;

  private final CommittedCache committed;
  private final byte[][] slabs = new byte[GROUP][];
  private final long[] at = new long[GROUP];
  private final int[] hashes = new int[GROUP];
  private final int[] addresses = new int[GROUP];

  /** Keeps the compiler from leaving out reads whose result nobody needs. */
  private int sum;

  Fold(CommittedCache committed) {
    this.committed = committed;
  }

  /**
   * Folds the writes of one family, and frees each slab after its last write.
   *
   * <p>REQUIRES: the committed cache has the version of the writes.
   */
  void add(CachedFamily family, EntryMap writes) {
    writes.dropOrder();
    EntryCursor entries = writes.cursor(true);
    int count;
    do {
      count = 0;
      while (count < GROUP && entries.next()) {
        set(count++, entries.slab, entries.at);
      }
      addGroup(family, count);
    } while (count == GROUP);
  }

  private void set(int index, byte[] slab, long entryAt) {
    slabs[index] = slab;
    at[index] = entryAt;
    hashes[index] = Entry.hash(slab, entryAt);
  }

  private void addGroup(CachedFamily family, int count) {
    sum += family.touch(hashes, addresses, count);
    for (int i = 0; i < count; i++) {
      add(family, slabs[i], at[i]);
    }
  }

  private void add(CachedFamily family, byte[] slab, long entryAt) {
    switch (Entry.state(slab, entryAt)) {
      case WriteBlock.PUT -> committed.put(family, slab, entryAt);
      case WriteBlock.DELETE -> committed.delete(family, slab, entryAt);
      default -> committed.append(family, slab, entryAt);
    }
  }
}
