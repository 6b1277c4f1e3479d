package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.PendingRows;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;
import io.cairn.spark.protocol.WriteBlock;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;

/**
 * The committed entries of a store: a read-through cache over the engine. A commit folds the
 * session's writes into it.
 *
 * <p>Memory for an entry is reserved, if necessary by eviction, before the entry is added. An entry
 * for which there is no memory is not cached.
 */
final class CommittedCache {
  /** Keys of one request of {@link #prefetch}, which sends as many requests as it needs. */
  static final int KEYS_PER_REQUEST = 4096;

  /** Bound of one request's bytes of keys; the last key may exceed it. */
  static final int MAX_KEY_BYTES = 4 << 20;

  /** Never changed. */
  private static final BitSet NONE_SKIPPED = new BitSet();

  final MemoryAccount account;
  final CachedFamilies families;
  final Eviction eviction;
  final PageSource pages;

  /** Replies that are not cached; of the open session, or of the last one. */
  Answers answers = new Answers();

  /** Of the open session, by family. */
  private final Map<CachedFamily, AscendingReads> ascending = new HashMap<>();

  private final Refill refill;
  final RefillPolicy refillPolicy;

  /** The engine as the open session reads it; null without session. */
  private EngineSource source;

  private final ByteSpan rowKey = new ByteSpan();
  private final ByteSpan rowValue = new ByteSpan();

  private byte lastPresence;
  private long hits;
  private long misses;
  private long singleReads;
  private long refillCount;

  /** Requests of the open session may begin a refill. */
  private boolean mayRefill;

  CommittedCache(MemoryAccount account) {
    this.account = account;
    families = new CachedFamilies(account);
    eviction = new Eviction(families, account);
    pages = new PageSource(families);
    refill = new Refill(families, eviction, account);
    refillPolicy = new RefillPolicy(account);
  }

  /** Reads that were answered without the engine. */
  long hits() {
    return hits;
  }

  /** Keys that were requested from the engine. */
  long misses() {
    return misses;
  }

  /** Reads of a single key that were sent to the engine. */
  long singleReads() {
    return singleReads;
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
    source = newSource;
    pages.use(newSource);
    answers = new Answers();
    noteApplied();
  }

  void end() {
    source = null;
    pages.use(null);
    answers.clear();
    ascending.clear();
    endRefills();
    // They cover pages of replies, which no bound counts.
    rowKey.clear();
    rowValue.clear();
  }

  void noteApplied() {
    families.noteApplied(source.appliedThrough());
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
    if (refillIfWorthwhile()) {
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
    misses++;
    singleReads++;
    RowPage rows = request(family, new byte[][] {key.toArray()}, 1);
    byte origin = rows.origin[0];
    int address = fill(family, hash, key, rows, 0);
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
    notePaid(rows);
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

  /** Requests keys; if values are large, the answer has fewer rows than keys, but at least one. */
  private RowPage request(CachedFamily family, byte[][] keys, int count) {
    RowPage rows = source.get(family.id, keys, count, families.requireFor(family));
    checkReply(rows, count);
    return rows;
  }

  /** Requests keys and returns without the reply, which {@link #cacheReply} caches. */
  PendingRows start(Answer.Keys requested) {
    CachedFamily family = requested.family;
    int count = requested.keys.length;
    misses += count;
    return source.startGet(family.id, requested.keys, count, families.requireFor(family));
  }

  private void checkReply(RowPage rows, int count) {
    noteApplied();
    refillPolicy.notePaid(RefillPolicy.ROWS_PER_REQUEST + rows.count);
    if (rows.count > count || rows.count < 1 || rows.more != (rows.count < count)) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the engine answered "
              + rows.count
              + " of "
              + count
              + " keys"
              + (rows.more ? " and says that more follow" : ""));
    }
  }

  /**
   * Caches the reply to {@link #start}, except keys that are outdated. If values are large, it
   * lacks the last keys. A spilled row cannot be cached: then the reply is kept too. Returns how
   * many keys can be read now.
   */
  int cacheReply(Answer.Keys requested, RowPage rows) {
    checkReply(rows, requested.keys.length);
    CachedFamily family = requested.family;
    int cached = fill(family, requested.keys, requested.hashes, requested.outdated, rows);
    if (!family.hasSpilledWrites) {
      return cached;
    }
    answers.add(requested, rows);
    return requested.currentCount();
  }

  /** Caches the answer to the first keys. Returns how many of them are cached now. */
  private int fill(CachedFamily family, byte[][] keys, int[] hashes, BitSet skipped, RowPage rows) {
    int cached = 0;
    for (int i = skipped.nextClearBit(0); i < rows.count; i = skipped.nextClearBit(i + 1)) {
      rowKey.set(keys[i]);
      int address = fill(family, hashes[i], rowKey, rows, i);
      if (address != 0) {
        cached++;
        Entry.raise(family.slab(address), Slabs.at(address), Entry.AWAITED);
      }
    }
    return cached;
  }

  /**
   * Caches a row of the engine's answer, unless it is spilled, or that the key is absent. 0: it is
   * not cached.
   */
  private int fill(CachedFamily family, int hash, ByteSpan key, RowPage rows, int row) {
    boolean isPresent = rows.origin[row] == RowPage.COMMITTED;
    boolean isNoted = rows.origin[row] == RowPage.ABSENT && !family.knowsAbsentKeys();
    if (!isPresent && !isNoted || family.find(hash, key) != 0) {
      return 0;
    }
    if (isPresent) {
      rows.value(row, rowValue);
    }
    return add(family, hash, key, isPresent ? rowValue : null);
  }

  /**
   * Prefetches those keys that neither the cache nor the write buffer can answer: one bulk request,
   * as far as memory allows, instead of one per later read.
   *
   * @param written the family's writes, or null
   * @return the number of keys that were requested
   */
  int prefetch(CachedFamily family, EntryMap written, byte[][] keys, int count) {
    byte[][] wanted = new byte[Math.min(count, KEYS_PER_REQUEST)][];
    int[] hashes = new int[wanted.length];
    int wantedCount = 0;
    long wantedBytes = 0;
    int requested = 0;
    for (int i = 0; i < count && !family.knowsAbsentKeys(); i++) {
      rowKey.set(keys[i]);
      int hash = Bytes.hash(rowKey);
      if (keepAnswer(family, written, hash, rowKey)) {
        continue;
      }
      wanted[wantedCount] = keys[i];
      hashes[wantedCount++] = hash;
      wantedBytes += keys[i].length;
      if (wantedCount == wanted.length || wantedBytes >= MAX_KEY_BYTES) {
        fetch(family, wanted, hashes, wantedCount);
        requested += wantedCount;
        wantedCount = 0;
        wantedBytes = 0;
      }
    }
    fetch(family, wanted, hashes, wantedCount);
    return requested + wantedCount;
  }

  /** Keeps the answer to a coming read of the key. False: there is none, it must be requested. */
  boolean keepAnswer(CachedFamily family, EntryMap written, int hash, ByteSpan key) {
    int committed = family.find(hash, key);
    if (committed != 0) {
      byte[] slab = family.slab(committed);
      long at = Slabs.at(committed);
      if (!Entry.has(slab, at, Entry.SHADOWED)) {
        Entry.raise(slab, at, Entry.AWAITED);
        return true;
      }
    }
    int address = written == null ? 0 : written.find(hash, key);
    return address != 0
        && Entry.state(written.slab(address), Slabs.at(address)) != WriteBlock.APPEND;
  }

  private void fetch(CachedFamily family, byte[][] keys, int[] hashes, int count) {
    misses += count;
    for (int done = 0; done < count; ) {
      byte[][] rest = done == 0 ? keys : Arrays.copyOfRange(keys, done, count);
      int[] restHashes = done == 0 ? hashes : Arrays.copyOfRange(hashes, done, count);
      RowPage rows = request(family, rest, count - done);
      fill(family, rest, restHashes, NONE_SKIPPED, rows);
      done += rows.count;
    }
  }

  /** Reads the rows of keys below the write buffer from the engine; null: there is no row. */
  byte[][] readAll(CachedFamily family, byte[][] keys) {
    misses += keys.length;
    byte[][] rows = new byte[keys.length][];
    for (int done = 0; done < keys.length; ) {
      int end = done;
      int limit = Math.min(keys.length, done + KEYS_PER_REQUEST);
      for (long bytes = 0; end < limit && bytes < MAX_KEY_BYTES; end++) {
        bytes += keys[end].length;
      }
      byte[][] next = Arrays.copyOfRange(keys, done, end);
      RowPage reply = source.get(family.id, next, next.length, families.version());
      checkReply(reply, next.length);
      for (int i = 0; i < reply.count; i++, done++) {
        if (reply.origin[i] == RowPage.COMMITTED || reply.origin[i] == RowPage.SPILL) {
          reply.value(i, rowValue);
          rows[done] = rowValue.toArray();
        }
      }
    }
    return rows;
  }

  /** Notes the cost of a page that was read for a scan. */
  void notePaid(RowPage rows) {
    refillPolicy.notePaid(RefillPolicy.ROWS_PER_REQUEST + rows.count);
  }

  /**
   * Reads the rows that the cache lacks of some families. REQUIRES: the session has spilled
   * nothing.
   *
   * @param stops see {@link Refill#run}
   */
  void refill(List<CachedFamily> some, BooleanSupplier stops) {
    boolean wasComplete = families.areComplete();
    refillPolicy.noteRefilled(refill.run(pages, some, stops));
    refillCount += !wasComplete && families.areComplete() && !refillPolicy.isFirst() ? 1 : 0;
  }

  /** Lets the requests of the open session begin a refill, and begins it now if it is small. */
  void refillOnDemand() {
    mayRefill = true;
    refillIfWorthwhile();
  }

  /** Lets no later request of the open session begin a refill. */
  void endRefills() {
    mayRefill = false;
  }

  /** Refills all families if the requests so far are worth it. True: the cache has more rows. */
  boolean refillIfWorthwhile() {
    if (!mayRefill || !refillPolicy.isWorthwhile()) {
      return false;
    }
    mayRefill = false; // once per session
    return tryRefill(List.copyOf(families.all()));
  }

  /** Refills a family before a scan of all its rows, which costs as much. */
  void refillForScan(CachedFamily family) {
    if (mayRefill && !family.isComplete) {
      mayRefill = tryRefill(List.of(family)) && family.isComplete;
    }
  }

  /** Refills, unless there is no memory for all rows, or the session has spilled. */
  private boolean tryRefill(List<CachedFamily> some) {
    boolean isPossible =
        refillPolicy.isDue()
            && families.all().stream().noneMatch(family -> family.hasSpilledWrites);
    if (isPossible) {
      // A task that was cancelled must not wait for all rows.
      refill(some, () -> Thread.currentThread().isInterrupted());
    }
    return isPossible;
  }

  /** Refills that made all families complete. */
  long refillCount() {
    return refillCount;
  }

  /** Adds an entry for a key that has none; null value: the key is absent. 0: no memory. */
  int add(CachedFamily family, int hash, ByteSpan key, ByteSpan value) {
    int capacity = Entry.capacityFor(value == null ? 0 : value.length);
    return eviction.reserve(family, key.length, capacity) ? family.insert(hash, key, value) : 0;
  }

  /** {@link CachedFamily#endShadows} of all families. */
  void endShadows(boolean removes) {
    families.all().forEach(family -> family.endShadows(removes));
  }
}
