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
 * <p>Entries are added to slabs in order: for each slab, those up to a mark were sent. An entry
 * that is changed afterwards is sent again, with the next early frame or at the commit: the last
 * row of a key counts. Its flag says what the engine has of it, so that the engine counts it once.
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

    /** Addresses below the mark whose entries were changed since they were sent. */
    private int[] changed = NONE;

    private int changedCount;
    private long changedBytes;

    Marked(MemoryAccount account) {
      super(account);
    }

    private boolean isSent(int address) {
      int slab = Slabs.slabOf(address);
      return slab < sent.length && Slabs.at(address) - Bytes.ARRAY < sent[slab];
    }

    /** An upper bound of the bytes of the frames that have what is new. */
    private long newBytes() {
      return slabs.usedBytes() - sentBytes + changedBytes;
    }

    private void addChanged(int address) {
      if (changedCount == changed.length) {
        changed = Arrays.copyOf(changed, Math.max(64, changedCount * 2));
      }
      changed[changedCount++] = address;
      changedBytes += Entry.size(slab(address), Slabs.at(address));
    }

    /** Notes that all entries were sent. */
    private void mark() {
      sent = slabs.usedNow();
      sentBytes = slabs.usedBytes();
      changedCount = 0;
      changedBytes = 0;
    }

    /** Notes that no entry was sent. */
    private void unmark() {
      if (sent == NONE) {
        return;
      }
      sent = NONE;
      sentBytes = 0;
      changedCount = 0;
      changedBytes = 0;
      for (EntryCursor entries = cursor(false); entries.next(); ) {
        lowerFlags(entries.slab, entries.at);
      }
    }
  }

  private final EarlyPolicy policy;
  private final EngineSource source;

  /** New keys after which {@link #send} has something to do: the first one begins the session. */
  private int untilDue = 1;

  private boolean hasBegun;

  /** Writes that the engine has received. */
  private long rows;

  /** An upper bound of the bytes of their frames. */
  private long bytes;

  /** Those whose entries were changed afterwards. */
  private long changedRows;

  private boolean isLost;

  EarlyWrites(EarlyPolicy policy, EngineSource source) {
    this.policy = policy;
    this.source = source;
  }

  /** Counts a new key. */
  void countInsert() {
    untilDue--;
  }

  boolean isDue() {
    return untilDue <= 0;
  }

  /**
   * Notes that an entry is changed.
   *
   * @param found its address before the change
   * @param before its op before the change
   * @param address where it is now
   */
  void noteChange(Marked writes, int found, byte before, int address) {
    byte[] slab = writes.slab(address);
    long at = Slabs.at(address);
    if (!writes.isSent(found) || isFlagged(slab, at)) {
      return;
    }
    Entry.raise(slab, at, before == WriteBlock.DELETE ? Entry.EARLY_DELETE : Entry.EARLY_PUT);
    changedRows++;
    if (address == found) {
      writes.addChanged(address);
    } // otherwise it has moved above the mark
  }

  private static boolean isFlagged(byte[] slab, long at) {
    return Entry.has(slab, at, Entry.EARLY_PUT) || Entry.has(slab, at, Entry.EARLY_DELETE);
  }

  private static void lowerFlags(byte[] slab, long at) {
    Entry.lower(slab, at, (byte) (Entry.EARLY_PUT | Entry.EARLY_DELETE));
  }

  /**
   * Sends what is new of all families of single values, unless the bound is reached, or many keys
   * are written again.
   */
  void send(Marked[] families, CachedFamilies known) {
    if (!hasBegun) {
      // Here, because readers and refills, which never write, are none of the paused sessions.
      hasBegun = true;
      untilDue = policy.admitSession() ? untilDue + policy.minWrites - 1 : Integer.MAX_VALUE;
      if (!isDue()) {
        return;
      }
    }
    untilDue = policy.minWrites;
    if (!policy.mayContinue(rows, changedRows)) {
      stop();
      return;
    }
    long newBytes = 0;
    for (int i = 0; i < families.length; i++) {
      newBytes += isSendable(families[i], known, i) ? families[i].newBytes() : 0;
    }
    if (bytes + newBytes > WriteBlock.MAX_EARLY_BYTES || source.earlyRows() != rows) {
      stop();
      return;
    }
    bytes += newBytes;
    BlockWriter writer = new BlockWriter(this::send);
    for (int i = 0; i < families.length; i++) {
      if (isSendable(families[i], known, i)) {
        addNew(writer, i, families[i], true, true);
      }
    }
    writer.flush();
    if (isLost) {
      stop();
      return;
    }
    for (int i = 0; i < families.length; i++) {
      if (isSendable(families[i], known, i)) {
        families[i].mark();
      }
    }
  }

  private static boolean isSendable(Marked writes, CachedFamilies known, int family) {
    return writes != null && !known.get(family).isMulti;
  }

  private void send(WriteBlock block) {
    if (!isLost && source.writeEarly(block)) {
      rows += block.count();
    } else {
      isLost = true;
    }
  }

  /**
   * Adds the writes of a family that the engine does not have, or has otherwise. One method for
   * early frames and the commit: the commit alone would call its own too rarely to have it compiled
   * soon.
   *
   * @param all also deletes of keys that are not committed, and that were not sent early
   */
  static void addNew(BlockWriter writer, int family, Marked writes, boolean all, boolean isEarly) {
    for (int i = 0; i < writes.changedCount; i++) {
      byte[] slab = writes.slab(writes.changed[i]);
      long at = Slabs.at(writes.changed[i]);
      if (Entry.state(slab, at) != Entry.MOVED) {
        add(writer, family, slab, at, all, isEarly);
      }
    }
    for (EntryCursor entries = writes.cursorFrom(writes.sent); entries.next(); ) {
      add(writer, family, entries.slab, entries.at, all, isEarly);
    }
  }

  private static void add(
      BlockWriter writer, int family, byte[] slab, long at, boolean all, boolean isEarly) {
    writer.add(family, slab, at, all);
    if (isEarly) {
      lowerFlags(slab, at); // the next change raises the one of what is sent now
    }
  }

  /** Sends nothing more before the commit. */
  private void stop() {
    untilDue = Integer.MAX_VALUE;
  }

  /** Forgets what was sent: a spill or the commit sends it again, as far as it is needed. */
  void forget(Marked[] families) {
    stop();
    // Here, and not with the spilled writes: there are none if all are deletes of absent keys.
    source.forgetEarly();
    rows = 0;
    changedRows = 0;
    for (Marked writes : families) {
      if (writes != null) {
        writes.unmark();
      }
    }
  }

  /** Whether the engine still has all writes that were sent. */
  boolean areKept() {
    return source.earlyRows() == rows;
  }
}
