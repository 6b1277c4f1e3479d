package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.WriteBlock;
import java.util.Arrays;

/** Collects writes into blocks and hands them to the engine. */
final class BlockWriter {
  private final MemoryPool budget;
  private final EngineSource source;
  private WriteBlock block;
  private boolean isSpilling;

  BlockWriter(MemoryPool budget, EngineSource source) {
    this.budget = budget;
    this.source = source;
  }

  /** Says whether the cache drops what is added from now on. */
  void spills(boolean isSpill) {
    isSpilling = isSpill;
  }

  void dropFamily(int family) {
    byte[] none = new byte[0];
    add(WriteBlock.DROP_CF, WriteBlock.UNKNOWN, family, none, Bytes.ARRAY, 0, Bytes.ARRAY, -1);
  }

  /**
   * Sends what a family's overlay holds. {@code all}: also deletes of keys that were never there.
   */
  void add(int family, Slabs slabs, boolean all) {
    for (int s = 1; s < slabs.end(); s++) {
      byte[] slab = slabs.slab(s);
      if (slab == null) {
        continue;
      }
      long end = Bytes.ARRAY + slabs.used(s);
      for (long at = Bytes.ARRAY; at < end; at += Entry.size(slab, at)) {
        byte state = Entry.state(slab, at);
        if (state == Entry.DEAD || state == Entry.MOVED) {
          continue;
        }
        byte presence = Entry.presence(slab, at);
        if (state != WriteBlock.DELETE) {
          add(
              state,
              presence,
              family,
              slab,
              Entry.key(at),
              Entry.keyLength(slab, at),
              Entry.value(slab, at),
              Entry.valueLength(slab, at));
        } else if (all || presence != WriteBlock.MISSING) {
          add(
              state,
              presence,
              family,
              slab,
              Entry.key(at),
              Entry.keyLength(slab, at),
              Bytes.ARRAY,
              -1);
        }
      }
    }
  }

  private void add(
      byte op,
      byte presence,
      int family,
      byte[] slab,
      long key,
      int keyLength,
      long value,
      int valueLength) {
    WriteBlock to = blockFor(keyLength + Math.max(0, valueLength));
    int i = to.count++;
    to.op[i] = op;
    to.presence[i] = presence;
    to.family[i] = (short) family;
    to.keyBase[i] = slab;
    to.keyOffset[i] = (int) (key - Bytes.ARRAY);
    to.keyLength[i] = keyLength;
    to.valueBase[i] = slab;
    to.valueOffset[i] = (int) (value - Bytes.ARRAY);
    to.valueLength[i] = valueLength;
    to.keyBytes += keyLength;
    to.valueBytes += Math.max(0, valueLength);
    if (to.isFull()) {
      flush();
    }
  }

  /** A block that has room for a row; one of its own for a row larger than the target. */
  private WriteBlock blockFor(long rowBytes) {
    if (block != null && block.keyBytes + block.valueBytes + rowBytes > WriteBlock.TARGET_BYTES) {
      flush();
    }
    if (block == null) {
      block = budget.borrowBlock();
    }
    return block;
  }

  /** Sends the block at hand and gives it back. */
  void flush() {
    WriteBlock full = block;
    if (full == null) {
      return;
    }
    block = null;
    try {
      if (full.count > 0) {
        source.write(full, isSpilling);
      }
    } finally {
      Arrays.fill(full.keyBase, 0, full.count, null);
      Arrays.fill(full.valueBase, 0, full.count, null);
      budget.returnBlock(full);
    }
  }
}
