package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.bytes.KeySort;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.PendingRows;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.WriteBlock;
import java.util.Arrays;
import java.util.BitSet;

/**
 * Requests the keys of coming reads in bulk, and caches the replies, while the session goes on.
 *
 * <p>A hint: it changes no result of a read. A reply may be outdated if the session has spilled
 * since its request. Then keys that were spilled are not cached, and ranges with such a key are not
 * used. Threads: as the session.
 */
public final class Prefetcher {
  /** Bound of one request's keys; the keys above it are read when they are needed. */
  private static final int MAX_PREFETCH_KEYS = 16_384;

  /** The entries of two requests may take half of the store's share of the memory. */
  private static final int MEMORY_DIVISOR = 2;

  private static final int MIN_PREFETCH_KEYS = 16;

  /** A short key and value with their header, and their place in the table. */
  private static final int MIN_BYTES_PER_ENTRY = 64;

  private final CommittedCache committed;
  private final WriteBuffer buffer;
  private long hits;
  private long waitedNs;

  /** Reads of single keys before the first request; -1: there was no request. */
  private long singleReadsBefore = -1;

  private final long rangeMissesBefore;

  /** Keys that were requested and whose reply is not cached yet. */
  public final class Request {
    private final CachedFamily family;
    private final byte[][] keys;
    private final int[] hashes;
    private final PendingRows reply;
    private final Runnable beforeSpill = this::noteSpill;

    /** Whether the metrics of prefetch have it. */
    private final boolean isCounted;

    /** Keys that were spilled since the request: the reply may have their committed values. */
    private final BitSet outdated = new BitSet();

    private Request(CachedFamily family, byte[][] keys, int[] hashes, boolean isCounted) {
      this.family = family;
      this.keys = keys;
      this.hashes = hashes;
      this.isCounted = isCounted;
      reply = committed.start(family, keys, keys.length);
      buffer.beforeSpill.add(beforeSpill);
    }

    private void noteSpill() {
      EntryMap written = buffer.writes(family.id);
      ByteSpan key = new ByteSpan();
      for (int i = 0; i < keys.length && written != null; i++) {
        key.set(keys[i]);
        if (written.find(hashes[i], key) != 0) {
          outdated.set(i);
        }
      }
    }

    /** Ends the request without its reply, instead of {@link #finish}. */
    void drop() {
      buffer.beforeSpill.remove(beforeSpill);
    }

    /**
     * Waits for the reply and caches it as far as memory allows, without keys that were spilled
     * meanwhile. A reply that was lost is requested again. Called once.
     */
    public void finish() {
      long startedNs = System.nanoTime();
      buffer.beforeSpill.remove(beforeSpill);
      RowPage rows = reply.take();
      int answered = 0;
      if (isCurrent(family)) {
        answered =
            rows != null
                ? committed.cacheReply(family, keys, hashes, outdated, rows)
                : committed.prefetch(family, buffer.writes(family.id), keys, keys.length);
      }
      if (isCounted) {
        hits += answered;
        waitedNs += System.nanoTime() - startedNs;
      }
    }
  }

  /** Ranges that were requested, and whose rows are not here yet. */
  public final class RangeRequest {
    private final CachedFamily family;
    private final PrefetchedRanges.Ranges ranges;
    private final PendingRows reply;
    private final Runnable beforeSpill = this::noteSpill;

    private RangeRequest(CachedFamily family, byte[][] from, byte[][] to) {
      this.family = family;
      ranges = new PrefetchedRanges.Ranges(from, to);
      reply = committed.pages.startRanges(family.id, from, to);
      buffer.beforeSpill.add(beforeSpill);
    }

    private void noteSpill() {
      ranges.noteSpill(buffer.writes(family.id));
    }

    /**
     * Waits for the rows and keeps them for the scans of their ranges. Ranges that the reply lacks,
     * or that were spilled meanwhile, are requested once more; those that are left then, or whose
     * reply was lost, are read by their scans. Called once.
     */
    public void finish() {
      long startedNs = System.nanoTime();
      buffer.beforeSpill.remove(beforeSpill);
      RowPage rows = isCurrent(family) ? take(reply) : null;
      if (rows != null) {
        int answered = committed.ranges.add(family, ranges, rows);
        PrefetchedRanges.Ranges rest = ranges.rest(answered);
        hits += ranges.count() - rest.count() + finishRest(rest);
      }
      waitedNs += System.nanoTime() - startedNs;
    }

    private int finishRest(PrefetchedRanges.Ranges rest) {
      if (rest.count() == 0) {
        return 0;
      }
      RowPage rows = take(committed.pages.startRanges(family.id, rest.from(), rest.to()));
      return rows == null ? 0 : committed.ranges.addRest(family, rest, rows);
    }

    private RowPage take(PendingRows pending) {
      RowPage rows = committed.pages.take(pending);
      if (rows != null) {
        committed.notePaid(rows);
      }
      return rows;
    }
  }

  Prefetcher(CommittedCache committed, WriteBuffer buffer) {
    rangeMissesBefore = committed.ranges.misses();
    this.committed = committed;
    this.buffer = buffer;
  }

  /** Whether the session is open and has this family. */
  private boolean isCurrent(CachedFamily family) {
    return buffer.isOpen()
        && committed.families.isDefined(family.id)
        && committed.families.get(family.id) == family;
  }

  /** Whether reads of a family may need the engine. */
  public boolean isUseful(int family) {
    return buffer.isOpen()
        && committed.families.isDefined(family)
        && !committed.families.get(family).knowsAbsentKeys();
  }

  /**
   * Keys that the next request should have at most: so many that their entries are not evicted
   * before their reads. More keys per request cost less each: the engine reads a block once for all
   * of its keys.
   */
  public int keyLimit(int family) {
    if (!buffer.isOpen() || !committed.families.isDefined(family)) {
      return MIN_PREFETCH_KEYS;
    }
    CachedFamily of = committed.families.get(family);
    long perEntry = Math.max(MIN_BYTES_PER_ENTRY, of.bytes() / Math.max(1, of.count()));
    MemoryAccount account = committed.account;
    long share = account.pool().fairShareBytes(account.use());
    long limit = share / (2 * MEMORY_DIVISOR * perEntry);
    return (int) Math.max(MIN_PREFETCH_KEYS, Math.min(MAX_PREFETCH_KEYS, limit));
  }

  /** As {@link #keyLimit}, for {@link #startPrefixes}. */
  public int prefixLimit(int family) {
    return Math.max(MIN_PREFETCH_KEYS, Math.min(MAX_PREFETCH_KEYS, committed.ranges.limit(family)));
  }

  /**
   * Requests those keys that neither the cache nor the session's writes can answer, sorted and each
   * once, and returns without the reply.
   *
   * @param keys is sorted by this call; at most {@link #MAX_PREFETCH_KEYS} of them are used
   * @return null if no key needs a request
   */
  public Request start(int family, byte[][] keys, int count) {
    return start(family, keys, count, true);
  }

  /** As {@link #start}, for reads that no operator has announced: the metrics leave it out. */
  Request startUncounted(int family, byte[][] keys, int count) {
    return start(family, keys, count, false);
  }

  private Request start(int family, byte[][] keys, int count, boolean isCounted) {
    buffer.beginCall();
    if (committed.refillIfWorthwhile() && !isUseful(family)) {
      return null;
    }
    CachedFamily of = committed.families.get(family);
    Writes written = buffer.writes(family);
    KeySort.sort(keys, count);
    byte[][] wanted = new byte[Math.min(count, MAX_PREFETCH_KEYS)][];
    int[] hashes = new int[wanted.length];
    ByteSpan key = new ByteSpan();
    int wantedCount = 0;
    long wantedBytes = 0;
    for (int i = 0;
        i < count && wantedCount < wanted.length && wantedBytes < CommittedCache.MAX_KEY_BYTES;
        i++) {
      if (i > 0 && Arrays.equals(keys[i], keys[i - 1])) {
        continue;
      }
      key.set(keys[i]);
      int hash = Bytes.hash(key);
      if (!committed.keepAnswer(of, written, hash, key)) {
        wanted[wantedCount] = keys[i];
        hashes[wantedCount++] = hash;
        wantedBytes += keys[i].length;
      }
    }
    if (wantedCount == 0) {
      return null;
    }
    if (isCounted && singleReadsBefore < 0) {
      singleReadsBefore = committed.singleReads();
    }
    return new Request(of, Arrays.copyOf(wanted, wantedCount), hashes, isCounted);
  }

  /**
   * Requests the rows of those prefixes that are not here yet, sorted and each once, and returns
   * without the reply. The rows are kept until those of two further requests have come.
   *
   * @param prefixes is sorted by this call; at most {@link #MAX_PREFETCH_KEYS} of them are used
   * @return null if no prefix needs a request
   */
  public RangeRequest startPrefixes(int family, byte[][] prefixes, int count) {
    buffer.beginCall();
    if (committed.refillIfWorthwhile() && !isUseful(family)) {
      return null;
    }
    CachedFamily of = committed.families.get(family);
    KeySort.sort(prefixes, count);
    byte[][] from = new byte[Math.min(count, MAX_PREFETCH_KEYS)][];
    byte[][] to = new byte[from.length][];
    int wanted = 0;
    long wantedBytes = 0;
    for (int i = 0;
        i < count && wanted < from.length && wantedBytes < CommittedCache.MAX_KEY_BYTES;
        i++) {
      byte[] end = Bytes.successor(prefixes[i]);
      byte[] endBefore = wanted == 0 ? null : to[wanted - 1];
      boolean overlaps =
          wanted > 0 && (endBefore == null || Arrays.compareUnsigned(prefixes[i], endBefore) < 0);
      if (!overlaps && !committed.ranges.has(of, prefixes[i], end)) {
        from[wanted] = prefixes[i];
        to[wanted++] = end;
        wantedBytes += prefixes[i].length;
      }
    }
    if (wanted == 0) {
      return null;
    }
    return new RangeRequest(of, Arrays.copyOf(from, wanted), Arrays.copyOf(to, wanted));
  }

  /**
   * Finds the value of a key without a request. False: the key is absent, or its value is not here.
   * The value is valid until the session's next call.
   */
  public boolean find(int family, ByteSpan key, ByteSpan out) {
    buffer.beginCall();
    int hash = Bytes.hash(key);
    EntryMap in = buffer.writes(family);
    int address = in == null ? 0 : in.find(hash, key);
    if (address == 0) {
      in = committed.families.get(family);
      address = in.find(hash, key);
    }
    if (address == 0) {
      return false;
    }
    byte[] slab = in.slab(address);
    long at = Slabs.at(address);
    if (Entry.state(slab, at) != WriteBlock.PUT || Entry.has(slab, at, Entry.SHADOWED)) {
      return false;
    }
    Entry.value(slab, at, out);
    return true;
  }

  /** Keys and prefixes that were read for a coming read, also if they are absent. */
  public long hits() {
    return hits;
  }

  /** Keys and ranges that were still read alone, since the first request. */
  public long misses() {
    long keys = singleReadsBefore < 0 ? 0 : committed.singleReads() - singleReadsBefore;
    return keys + committed.ranges.misses() - rangeMissesBefore;
  }

  /** Time for which the session waited for replies. */
  public long waitedMs() {
    return Math.round(waitedNs / 1e6);
  }
}
