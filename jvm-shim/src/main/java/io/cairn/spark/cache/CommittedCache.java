package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;
import io.cairn.spark.protocol.WriteBlock;
import java.util.HashMap;
import java.util.Map;

/**
 * The committed entries of a store: a read-through cache over the engine. A commit folds the
 * session's writes into it.
 */
final class CommittedCache {
  final MemoryAccount account;
  final CachedFamilies families;
  final Eviction eviction;
  final PageSource pages;
  final KeySource keys;
  final RefillOnDemand refills;

  /** Replies that are not cached; of the open session, or of the last one. */
  Answers answers = new Answers();

  /** Of the open session, by family. */
  private final Map<CachedFamily, AscendingReads> ascending = new HashMap<>();

  private byte lastPresence;
  private long hits;

  CommittedCache(MemoryAccount account) {
    this.account = account;
    families = new CachedFamilies(account);
    eviction = new Eviction(families, account);
    pages = new PageSource(families);
    refills = new RefillOnDemand(families, eviction, account, pages);
    keys = new KeySource(families, eviction, refills);
  }

  /** Reads that were answered without the engine. */
  long hits() {
    return hits;
  }

  /**
   * Presence of the key of the last {@link #get}, as a write block numbers it: whether it is
   * committed, also if the session has spilled a newer write.
   */
  byte lastPresence() {
    return lastPresence;
  }

  /** What the cache knows about the presence of a committed key. */
  byte presence(CachedFamily family, int hash, ByteSpan key) {
    int address = family.find(hash, key);
    if (address == 0) {
      return family.isComplete ? WriteBlock.MISSING : WriteBlock.UNKNOWN;
    }
    return presenceOf(family.slab(address), Slabs.at(address));
  }

  private static byte presenceOf(byte[] slab, long at) {
    return Entry.state(slab, at) == WriteBlock.DELETE ? WriteBlock.MISSING : WriteBlock.PRESENT;
  }

  /** Counts a read that the write buffer answered. */
  void countHit() {
    hits++;
  }

  /** Begins a session; reads go through to its engine. */
  void begin(EngineSource newSource) {
    pages.use(newSource);
    answers = new Answers();
    keys.begin(newSource);
  }

  void end() {
    pages.use(null);
    keys.end();
    answers.clear();
    ascending.clear();
    refills.forbid();
  }

  /**
   * Finds the value of a key below the write buffer: committed, or spilled by the open session.
   * False: absent, and {@code out} is unchanged.
   */
  boolean get(CachedFamily family, int hash, ByteSpan key, ByteSpan out) {
    int address = family.find(hash, key);
    if (address != 0) {
      byte[] slab = family.slab(address);
      long at = Slabs.at(address);
      if (!Entry.has(slab, at, Entry.SHADOWED)) {
        hits++;
        Entry.noteRead(slab, at);
        lastPresence = presenceOf(slab, at);
        if (lastPresence == WriteBlock.MISSING) {
          return false;
        }
        Entry.value(slab, at, out);
        return true;
      }
    } else if (family.knowsAbsentKeys()) {
      hits++;
      lastPresence = WriteBlock.MISSING;
      return false;
    }
    return getFromEngine(family, hash, key, out);
  }

  private boolean getFromEngine(CachedFamily family, int hash, ByteSpan key, ByteSpan out) {
    if (refills.runIfWorthwhile()) {
      return get(family, hash, key, out);
    }
    Answer.Rows known = answers.find(family, key);
    if (known == null && !family.isMulti && readPage(family, key)) {
      known = answers.find(family, key);
    }
    if (known != null) {
      hits++;
      return known.first() < known.end()
          ? takeRow(known.page(), known.first(), out)
          : takeAbsent(family);
    }
    RowPage rows = keys.readOne(family, key);
    byte origin = rows.origin[0];
    int address = keys.fill(family, hash, key, rows, 0);
    if (origin != RowPage.COMMITTED && origin != RowPage.SPILL) {
      return takeAbsent(origin == RowPage.ABSENT ? WriteBlock.MISSING : WriteBlock.UNKNOWN);
    }
    if (address == 0) {
      return takeRow(rows, 0, out);
    }
    lastPresence = WriteBlock.PRESENT;
    Entry.value(family.slab(address), Slabs.at(address), out);
    return true;
  }

  /** Reads the rows from a key on, if the keys are read in order. False: they are not. */
  private boolean readPage(CachedFamily family, ByteSpan key) {
    AscendingReads reads = ascending.computeIfAbsent(family, AscendingReads::new);
    ScanRequest request = reads.request(key);
    if (request == null) {
      return false;
    }
    RowPage rows = pages.read(request);
    refills.notePaid(rows);
    answers.add(reads.take(request, rows), rows);
    return true;
  }

  /** Takes the answer that neither the committed version nor a spill has the key. */
  private boolean takeAbsent(CachedFamily family) {
    // A spill may have deleted it.
    return takeAbsent(family.hasSpilledWrites ? WriteBlock.UNKNOWN : WriteBlock.MISSING);
  }

  private boolean takeAbsent(byte presence) {
    lastPresence = presence;
    return false;
  }

  /** Takes the answer to a read from a page that is overwritten or dropped later. */
  private boolean takeRow(RowPage rows, int row, ByteSpan out) {
    boolean isCommitted = rows.origin[row] == RowPage.COMMITTED;
    lastPresence = isCommitted ? WriteBlock.PRESENT : WriteBlock.UNKNOWN;
    RowPage.unpad(rows.paddedValue(row), out);
    return true;
  }

  /** {@link CachedFamily#endShadows} of all families. */
  void endShadows(boolean removes) {
    families.all().forEach(family -> family.endShadows(removes));
  }
}
