package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.WriteBlock;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The writes that a session sends to the engine before its commit, so that the engine encodes them
 * meanwhile. They stay in the write buffer, which answers reads and can send them again.
 *
 * <p>Entries are added to slabs in order: for each slab, those up to a mark were sent. A write that
 * changes such an entry flags it; it is sent again at the commit, and not before: so all early
 * frames together have no key twice. The commit names the early rows that it replaces.
 *
 * <p>Spec: docs/adr/0021-early-frames.md.
 */
final class EarlyWrites {
  /** No early row: the delete was left out. */
  private static final int UNSENT = -1;

  /**
   * What one call sent of a family.
   *
   * @param firstRow number of its first row among all early rows
   * @param addresses where its rows are in the slabs, ascending
   */
  private record Part(int firstRow, int[] addresses) {
    /** False: the part does not have it. */
    private boolean mayHave(int address) {
      return addresses[0] <= address && address <= addresses[addresses.length - 1];
    }
  }

  /** The writes of one family, some of which were sent. */
  static class Marked extends EntryMap {
    private static final int[] NONE = {};

    /** Bytes of each slab that were sent. */
    private int[] sent = NONE;

    private long sentBytes;
    private final List<Part> parts = new ArrayList<>();

    /** Addresses at which entries were when they were written again, each entry once. */
    private int[] rewritten = NONE;

    /** For each of them the number of its row among all early rows, or {@link #UNSENT}. */
    private int[] earlyRows = NONE;

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
      parts.clear();
      rewritten = NONE;
      earlyRows = NONE;
      rewrittenCount = 0;
    }

    private void addRewritten(int address) {
      if (rewrittenCount == rewritten.length) {
        rewritten = Arrays.copyOf(rewritten, Math.max(64, rewrittenCount * 2));
        earlyRows = Arrays.copyOf(earlyRows, rewritten.length);
      }
      earlyRows[rewrittenCount] = earlyRowAt(address);
      rewritten[rewrittenCount++] = address;
    }

    /** The number of the early row that was sent from this address, or {@link #UNSENT}. */
    private int earlyRowAt(int address) {
      for (Part part : parts) {
        if (part.mayHave(address)) {
          int row = Arrays.binarySearch(part.addresses, address);
          if (row >= 0) {
            return part.firstRow + row;
          }
        }
      }
      return UNSENT;
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

  /** New keys after which {@link #send} has something to do: the first one begins the session. */
  private int untilDue = 1;

  private boolean hasBegun;

  /** Writes that the engine has received. */
  private long rows;

  /** An upper bound of the bytes of their frames. */
  private long bytes;

  private int rewrittenCount;
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
    if (!hasBegun) {
      // Here, because readers and refills, which never write, are none of the paused sessions.
      hasBegun = true;
      untilDue = policy.begin() ? untilDue + policy.minWrites - 1 : Integer.MAX_VALUE;
      if (!isDue()) {
        return;
      }
    }
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
    int next = (int) rows;
    BlockWriter writer = new BlockWriter(this::send);
    for (int i = 0; i < families.length; i++) {
      if (isSendable(families[i], known, i)) {
        int[] addresses = addUnsent(writer, i, families[i], false);
        if (addresses.length > 0) {
          families[i].parts.add(new Part(next, addresses));
          next += addresses.length;
        }
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

  /**
   * Adds the writes of a family that no early frame has, except those that {@link Marked#rewritten}
   * names, and returns where they are. One method for early frames and the commit: the commit alone
   * would call its own too rarely to have it compiled soon.
   */
  private static int[] addUnsent(BlockWriter writer, int family, Marked writes, boolean isNeeded) {
    // Entries keep the flag when the list is forgotten: all of them are added here then.
    boolean skipsRewritten = writes.rewrittenCount > 0;
    int[] addresses = new int[256];
    int count = 0;
    for (EntryCursor entries = writes.cursorFrom(writes.sent); entries.next(); ) {
      boolean isSkipped = skipsRewritten && isRewritten(entries);
      if (!isSkipped && writer.add(family, entries.slab, entries.at, isNeeded)) {
        if (count == addresses.length) {
          addresses = Arrays.copyOf(addresses, count * 2);
        }
        addresses[count++] = entries.address();
      }
    }
    return Arrays.copyOf(addresses, count);
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

  /** Makes void what was sent: a spill or the commit sends it again, as far as it is needed. */
  void forget(Marked[] families) {
    stop();
    // Here, and not with the spilled writes: there are none if all are deletes of absent keys.
    source.voidEarly();
    rows = 0;
    rewrittenCount = 0;
    for (Marked writes : families) {
      if (writes != null) {
        writes.unmark();
      }
    }
  }

  /**
   * Adds the writes that replace early rows of the engine, and names those rows. The others follow
   * by {@link #addRest}. REQUIRES: no write is added before, except drops of families.
   */
  void addReplacements(BlockWriter writer, Marked[] families) {
    int[] replaced = new int[rewrittenCount];
    int count = 0;
    for (int i = 0; i < families.length; i++) {
      Marked writes = families[i];
      for (int j = 0; writes != null && j < writes.rewrittenCount; j++) {
        if (writes.earlyRows[j] != UNSENT) {
          // Also the delete of a key that is not committed: the engine has a write of it.
          addNewest(writer, i, writes, j, true);
          replaced[count++] = writes.earlyRows[j];
        }
      }
    }
    if (count > 0) {
      source.replaceEarly(Arrays.copyOf(replaced, count));
    }
  }

  private static void addNewest(
      BlockWriter writer, int family, Marked writes, int number, boolean isNeeded) {
    int address = writes.follow(writes.rewritten[number]);
    writer.add(family, writes.slab(address), Slabs.at(address), isNeeded);
  }

  /** Adds the writes of a family that the engine does not have, and that replace none of its. */
  void addRest(BlockWriter writer, int family, Marked writes, boolean all) {
    for (int i = 0; i < writes.rewrittenCount; i++) {
      if (writes.earlyRows[i] == UNSENT) {
        addNewest(writer, family, writes, i, false);
      }
    }
    addUnsent(writer, family, writes, all);
  }

  private static boolean isRewritten(EntryCursor entries) {
    return Entry.has(entries.slab, entries.at, Entry.REWRITTEN);
  }

  /** Whether the engine still has all writes that were sent. */
  boolean areKept() {
    return source.earlyRows() == rows;
  }
}
