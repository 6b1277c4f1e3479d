package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.PendingRows;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.WriteBlock;
import java.util.Arrays;
import java.util.BitSet;

/**
 * Reads the rows of keys from the engine of the open session, one by one and in bulk, and caches
 * them as far as memory allows.
 */
final class KeySource {
  /** Keys of one request of {@link #prefetch}, which sends as many requests as it needs. */
  static final int KEYS_PER_REQUEST = 4096;

  /** Bound of one request's bytes of keys; the last key may exceed it. */
  static final int MAX_KEY_BYTES = 4 << 20;

  /** Never changed. */
  private static final BitSet NONE_SKIPPED = new BitSet();

  private final CachedFamilies families;
  private final Eviction eviction;
  private final RefillOnDemand refills;

  /** Null without session. */
  private EngineSource source;

  private final ByteSpan rowKey = new ByteSpan();
  private final ByteSpan rowValue = new ByteSpan();
  private long misses;
  private long singleReads;

  KeySource(CachedFamilies families, Eviction eviction, RefillOnDemand refills) {
    this.families = families;
    this.eviction = eviction;
    this.refills = refills;
  }

  /** Begins a session. */
  void begin(EngineSource newSource) {
    source = newSource;
    noteApplied();
  }

  void end() {
    source = null;
    // They cover pages of replies, which no bound counts.
    rowKey.clear();
    rowValue.clear();
  }

  void noteApplied() {
    families.noteApplied(source.appliedThrough());
  }

  /** Keys that were requested from the engine. */
  long misses() {
    return misses;
  }

  /** Reads of a single key that were sent to the engine. */
  long singleReads() {
    return singleReads;
  }

  /** Requests one key, for which a read waits. */
  RowPage readOne(CachedFamily family, ByteSpan key) {
    misses++;
    singleReads++;
    return request(family, new byte[][] {key.toArray()}, 1);
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
    refills.notePaid(rows);
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
   * Caches the reply to {@link #start}, except spilled rows and keys that are outdated. If values
   * are large, it lacks the last keys. Returns how many keys are cached now.
   */
  int cacheReply(Answer.Keys requested, RowPage rows) {
    checkReply(rows, requested.keys.length);
    return fill(requested.family, requested.keys, requested.hashes, requested.outdated, rows);
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
  int fill(CachedFamily family, int hash, ByteSpan key, RowPage rows, int row) {
    boolean isPresent = rows.origin[row] == RowPage.COMMITTED;
    boolean isNoted = rows.origin[row] == RowPage.ABSENT && !family.knowsAbsentKeys();
    if (!isPresent && !isNoted || family.find(hash, key) != 0) {
      return 0;
    }
    if (isPresent) {
      rows.value(row, rowValue);
    }
    return eviction.insert(family, hash, key, isPresent ? rowValue : null);
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
}
