package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.WriteBlock;
import java.util.ArrayDeque;

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
    key.clear();
    value.set(null, 0, -1);
    add(WriteBlock.DROP_CF, WriteBlock.UNKNOWN, family);
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
        value.set(slab, at, -1);
      } else {
        continue;
      }
      add(op, presence, family);
    }
  }

  private void add(byte op, byte presence, int family) {
    long rowBytes = key.length + (long) Math.max(0, value.length);
    if (block != null && !block.hasSpaceFor(rowBytes)) {
      flush();
    }
    if (block == null) {
      block = takeSpare();
    }
    block.add(op, presence, family, key, value);
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
