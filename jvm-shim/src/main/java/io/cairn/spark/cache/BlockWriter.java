package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.protocol.WriteBlock;
import java.util.ArrayDeque;
import java.util.function.Consumer;

/** Sends writes to the engine in blocks; one writer per spill or commit. */
final class BlockWriter {
  private static final int MAX_SPARE_BLOCKS = 4;
  private static final ArrayDeque<WriteBlock> SPARE_BLOCKS = new ArrayDeque<>();

  private final Consumer<WriteBlock> sink;
  private final ByteSpan key = new ByteSpan();
  private final ByteSpan value = new ByteSpan();
  private WriteBlock block;

  /**
   * @param sink sends a block, which it reads before it returns
   */
  BlockWriter(Consumer<WriteBlock> sink) {
    this.sink = sink;
  }

  void dropFamily(int family) {
    key.clear();
    value.set(null, 0, -1);
    add(WriteBlock.DROP_CF, WriteBlock.UNKNOWN, family);
  }

  /** Sends one write of a family. {@code all}: also a delete of a key that is not committed. */
  void add(int family, byte[] slab, long at, boolean all) {
    byte op = Entry.state(slab, at);
    byte presence = Entry.presence(slab, at);
    if (op != WriteBlock.DELETE) {
      Entry.value(slab, at, value);
    } else if (all || presence != WriteBlock.MISSING) {
      value.set(slab, at, -1);
    } else {
      return;
    }
    Entry.key(slab, at, key);
    add(op, presence, family);
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
      sink.accept(full);
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
