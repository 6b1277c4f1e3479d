package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.WriteBlock;
import java.util.ArrayDeque;
import java.util.Arrays;

/** Sends writes to the engine in blocks; one writer per spill or commit. */
final class BlockWriter {
  private static final int MAX_SPARE_BLOCKS = 4;
  private static final ArrayDeque<WriteBlock> SPARE_BLOCKS = new ArrayDeque<>();

  private final EngineSource source;
  private final ByteSpan key = new ByteSpan();
  private final ByteSpan value = new ByteSpan();
  private final boolean isSpill;
  private WriteBlock block;

  /**
   * @param isSpill whether the cache drops the writes afterwards
   */
  BlockWriter(EngineSource source, boolean isSpill) {
    this.source = source;
    this.isSpill = isSpill;
  }

  void dropFamily(int family) {
    byte[] empty = new byte[0];
    key.set(empty);
    value.set(empty, Bytes.ARRAY, -1);
    add(WriteBlock.DROP_CF, WriteBlock.UNKNOWN, family, empty);
  }

  /**
   * Sends the writes of a family. {@code all}: also deletes of keys that are not committed, because
   * they may have been spilled.
   */
  void add(int family, EntryMap writes, boolean all) {
    for (EntryCursor entries = writes.cursor(false); entries.next(); ) {
      byte[] slab = entries.slab;
      long at = entries.at;
      byte op = Entry.state(slab, at);
      byte presence = Entry.presence(slab, at);
      Entry.key(slab, at, key);
      if (op != WriteBlock.DELETE) {
        Entry.value(slab, at, value);
      } else if (all || presence != WriteBlock.MISSING) {
        value.set(slab, Bytes.ARRAY, -1);
      } else {
        continue;
      }
      add(op, presence, family, slab);
    }
  }

  /** Adds key and value, which are in the given array. */
  private void add(byte op, byte presence, int family, byte[] array) {
    WriteBlock to = blockFor(key.length + Math.max(0, value.length));
    int i = to.count++;
    to.op[i] = op;
    to.presence[i] = presence;
    to.family[i] = (short) family;
    to.keyBase[i] = array;
    to.keyOffset[i] = (int) (key.offset - Bytes.ARRAY);
    to.keyLength[i] = key.length;
    to.valueBase[i] = array;
    to.valueOffset[i] = (int) (value.offset - Bytes.ARRAY);
    to.valueLength[i] = value.length;
    to.keyBytes += key.length;
    to.valueBytes += Math.max(0, value.length);
    if (to.isFull()) {
      flush();
    }
  }

  /** A block with space for a row; a row larger than the target has a block of its own. */
  private WriteBlock blockFor(long rowBytes) {
    if (block != null && block.keyBytes + block.valueBytes + rowBytes > WriteBlock.TARGET_BYTES) {
      flush();
    }
    if (block == null) {
      block = takeSpare();
    }
    return block;
  }

  /** Sends the block that is not full yet. */
  void flush() {
    WriteBlock full = block;
    if (full == null) {
      return;
    }
    block = null;
    try {
      source.write(full, isSpill);
    } finally {
      Arrays.fill(full.keyBase, 0, full.count, null);
      Arrays.fill(full.valueBase, 0, full.count, null);
      full.clear();
      returnSpare(full);
    }
  }

  private static WriteBlock takeSpare() {
    synchronized (SPARE_BLOCKS) {
      WriteBlock spare = SPARE_BLOCKS.poll();
      return spare == null ? new WriteBlock() : spare;
    }
  }

  private static void returnSpare(WriteBlock empty) {
    synchronized (SPARE_BLOCKS) {
      if (SPARE_BLOCKS.size() < MAX_SPARE_BLOCKS) {
        SPARE_BLOCKS.push(empty);
      }
    }
  }
}
