package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.WriteBlock;
import java.util.Arrays;

/**
 * The writes that a session sends to the engine before its commit, so that the engine encodes them
 * meanwhile. They stay in the write buffer, which answers reads and can send them again.
 *
 * <p>Entries are added to slabs in order: for each slab, those up to a mark were sent. A write that
 * changes such an entry flags it; it is sent again at the commit, and not before: so all early
 * frames together have no key twice.
 *
 * <p>Spec: docs/adr/0021-early-frames.md.
 */
final class EarlyWrites {
  /** The writes of one family, some of which were sent. */
  static class Marked extends EntryMap {
    private static final int[] NONE = {};

    /** Bytes of each slab that were sent. */
    private int[] sent = NONE;

    private long sentBytes;

    /** Addresses at which entries were when they were written again, each entry once. */
    private int[] rewritten = NONE;

    private int rewrittenCount;

    Marked(MemoryAccount account) {
      super(account);
    }

    private boolean isSent(int address) {
      int slab = Slabs.slabOf(address);
      return slab < sent.length && Slabs.at(address) - Bytes.ARRAY < sent[slab];
    }

    private void mark() {
      sent = slabs.usedNow();
      sentBytes = slabs.usedBytes();
    }

    private void unmark() {
      sent = NONE;
      sentBytes = 0;
      rewritten = NONE;
      rewrittenCount = 0;
    }

    private void addRewritten(int address) {
      if (rewrittenCount == rewritten.length) {
        rewritten = Arrays.copyOf(rewritten, Math.max(64, rewrittenCount * 2));
      }
      rewritten[rewrittenCount++] = address;
    }

    /** The present address of an entry that was at an address, and may have grown since. */
    private int follow(int address) {
      int now = address;
      while (Entry.state(slab(now), Slabs.at(now)) == Entry.MOVED) {
        now = Entry.valueLength(slab(now), Slabs.at(now));
      }
      return now;
    }
  }

  private final EarlyPolicy policy;
  private final EngineSource source;
  private int untilDue;

  /** Writes that the engine has received. */
  private long rows;

  /** An upper bound of the bytes of their frames. */
  private long bytes;

  private int rewrittenCount;
  private boolean isLost;

  EarlyWrites(EarlyPolicy policy, EngineSource source) {
    this.policy = policy;
    this.source = source;
    untilDue = policy.begin() ? policy.minWrites : Integer.MAX_VALUE;
  }

  /** Counts a new key. */
  void countInsert() {
    untilDue--;
  }

  boolean isDue() {
    return untilDue <= 0;
  }

  /** Whether a key that was sent was written again. */
  boolean hasRewritten() {
    return rewrittenCount > 0;
  }

  /**
   * Notes that an entry was changed.
   *
   * @param found its address before the change
   * @param slab has the entry after the change
   * @param at where it is there
   */
  void noteRewrite(Marked writes, int found, byte[] slab, long at) {
    if (writes.isSent(found) && !Entry.has(slab, at, Entry.REWRITTEN)) {
      Entry.raise(slab, at, Entry.REWRITTEN);
      writes.addRewritten(found);
      rewrittenCount++;
    }
  }

  /**
   * Sends the new writes of all families of single values, unless the bound is reached, or many
   * keys are written again.
   */
  void send(Marked[] families, CachedFamilies known) {
    untilDue = policy.minWrites;
    if (!policy.mayContinue(rows, rewrittenCount)) {
      stop();
      return;
    }
    long unsentBytes = 0;
    for (int i = 0; i < families.length; i++) {
      if (isSendable(families[i], known, i)) {
        unsentBytes += families[i].slabs.usedBytes() - families[i].sentBytes;
      }
    }
    if (bytes + unsentBytes > WriteBlock.MAX_EARLY_BYTES || source.earlyRows() != rows) {
      stop();
      return;
    }
    bytes += unsentBytes;
    BlockWriter writer = new BlockWriter(this::send);
    for (int i = 0; i < families.length; i++) {
      if (isSendable(families[i], known, i)) {
        add(writer, i, families[i]);
      }
    }
    writer.flush();
    if (isLost) {
      stop();
    } else {
      for (int i = 0; i < families.length; i++) {
        if (isSendable(families[i], known, i)) {
          families[i].mark();
        }
      }
    }
  }

  private static boolean isSendable(Marked writes, CachedFamilies known, int family) {
    return writes != null && !known.get(family).isMulti;
  }

  private static void add(BlockWriter writer, int family, Marked writes) {
    for (EntryCursor entries = writes.cursorFrom(writes.sent); entries.next(); ) {
      if (!Entry.has(entries.slab, entries.at, Entry.REWRITTEN)) {
        writer.add(family, entries.slab, entries.at, false);
      }
    }
  }

  private void send(WriteBlock block) {
    if (!isLost && source.writeEarly(block)) {
      rows += block.count();
    } else {
      isLost = true;
    }
  }

  /** Sends nothing more before the commit. */
  private void stop() {
    untilDue = Integer.MAX_VALUE;
  }

  /** Forgets what was sent: a spill or the commit sends it again. */
  void forget(Marked[] families) {
    stop();
    for (Marked writes : families) {
      if (writes != null) {
        writes.unmark();
      }
    }
  }

  /** Adds those writes of a family that the engine does not have. */
  void addRest(BlockWriter writer, int family, Marked writes, boolean all) {
    for (int i = 0; i < writes.rewrittenCount; i++) {
      int address = writes.follow(writes.rewritten[i]);
      if (writes.isSent(address)) {
        // The engine may have an earlier write of the key, which the delete must replace.
        writer.add(family, writes.slab(address), Slabs.at(address), true);
      }
    }
    for (EntryCursor entries = writes.cursorFrom(writes.sent); entries.next(); ) {
      boolean isRewritten = Entry.has(entries.slab, entries.at, Entry.REWRITTEN);
      writer.add(family, entries.slab, entries.at, all || isRewritten);
    }
  }

  /** Whether the engine still has all writes that were sent. */
  boolean areKept() {
    return source.earlyRows() == rows;
  }
}
