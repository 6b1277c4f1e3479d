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
import java.util.function.ToIntFunction;

/**
 * Requests the keys of coming reads in bulk, and caches the replies, while the session goes on.
 *
 * <p>A hint: it changes no result of a read. {@link Answers} knows what a spill has made outdated.
 * Threads: as the session.
 */
public final class Prefetcher {
  /** Bound of one request's keys; the keys above it are read when they are needed. */
  private static final int MAX_PREFETCH_KEYS = 16_384;

  /** The entries of two requests may take half of the store's share of the memory. */
  private static final int MEMORY_DIVISOR = 2;

  private static final int MIN_PREFETCH_KEYS = 16;
  private static final int MARGIN_DIVISOR = 16;
  private static final int GROWTH_DIVISOR = 64;

  /** A short key and value with their header, and their place in the table. */
  private static final int MIN_BYTES_PER_ENTRY = 64;

  private final CommittedCache committed;
  private final WriteBuffer buffer;
  private final Answers answers;
  private long hits;
  private long waitedNs;

  /** Reads of single keys before the first request; -1: there was no request. */
  private long singleReadsBefore = -1;

  /** Keys or ranges that were requested, and whose rows cannot be read yet. */
  public final class Request {
    private final Answer answer;
    private final PendingRows reply;
    private final ToIntFunction<PendingRows> receive;

    /**
     * @param receive makes the rows of the reply readable, and returns how many keys or ranges are
     */
    private Request(Answer answer, PendingRows reply, ToIntFunction<PendingRows> receive) {
      this.answer = answer;
      this.reply = reply;
      this.receive = receive;
      answers.await(answer);
    }

    /**
     * Waits for the reply, and keeps its rows for their reads, without those that were spilled
     * meanwhile. Called once.
     */
    public void finish() {
      long startedNs = System.nanoTime();
      answers.endWait(answer);
      hits += isCurrent(answer.family) ? receive.applyAsInt(reply) : 0;
      waitedNs += System.nanoTime() - startedNs;
    }
  }

  /**
   * Caches the reply to a request of keys, as far as memory allows. Spilled rows cannot be cached:
   * then the reply is kept too. A reply that was lost is requested again.
   */
  private int receiveKeys(Answer.Keys requested, PendingRows reply) {
    RowPage rows = reply.take();
    CachedFamily family = requested.family;
    if (rows != null) {
      int cached = committed.keys.cacheReply(requested, rows);
      if (!family.hasSpilledWrites) {
        return cached;
      }
      answers.add(requested, rows);
      return requested.currentCount();
    }
    byte[][] keys = requested.keys;
    return committed.keys.prefetch(family, buffer.writes.get(family), keys, keys.length);
  }

  /**
   * Keeps the reply to a request of ranges. Ranges that it lacks, or that were spilled meanwhile,
   * are requested once more; those that are left then, or whose reply was lost, are read by their
   * scans.
   */
  private int receiveRanges(Answer.Ranges requested, PendingRows reply) {
    RowPage rows = takePage(reply);
    if (rows == null) {
      return 0;
    }
    answers.add(requested, rows);
    noteAnswered(requested.family, requested.count(), rows.more);
    Answer.Ranges rest = requested.rest();
    int answered = requested.from.length - rest.from.length;
    RowPage restRows = rest.from.length == 0 ? null : takePage(committed.pages.startRanges(rest));
    if (restRows != null) {
      answers.add(rest, restRows);
      answered += rest.count();
    }
    return answered;
  }

  private RowPage takePage(PendingRows reply) {
    RowPage rows = committed.pages.take(reply);
    if (rows != null) {
      committed.refills.notePaid(rows);
    }
    return rows;
  }

  /**
   * Bounds the next request of ranges to what a reply answers: the task waits for the reply to the
   * others. So the bound grows slowly.
   */
  private static void noteAnswered(CachedFamily family, int count, boolean isBound) {
    family.rangeLimit =
        isBound
            ? count - count / MARGIN_DIVISOR
            : Math.max(family.rangeLimit, count + count / GROWTH_DIVISOR + 1);
  }

  Prefetcher(CommittedCache committed, WriteBuffer buffer) {
    this.committed = committed;
    answers = committed.answers;
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
    boolean isDefined = committed.families.isDefined(family);
    int limit = isDefined ? committed.families.get(family).rangeLimit : MIN_PREFETCH_KEYS;
    return Math.max(MIN_PREFETCH_KEYS, Math.min(MAX_PREFETCH_KEYS, limit));
  }

  /**
   * Requests those keys that neither the cache nor the session's writes can answer, sorted and each
   * once, and returns without the reply.
   *
   * @param keys is sorted by this call; at most {@link #MAX_PREFETCH_KEYS} of them are used
   * @return null if no key needs a request
   */
  public Request start(int family, byte[][] keys, int count) {
    buffer.beginCall();
    if (committed.refills.runIfWorthwhile() && !isUseful(family)) {
      return null;
    }
    CachedFamily of = committed.families.get(family);
    Writes written = buffer.writes.get(of);
    KeySort.sort(keys, count);
    byte[][] wanted = new byte[Math.min(count, MAX_PREFETCH_KEYS)][];
    int[] hashes = new int[wanted.length];
    ByteSpan key = new ByteSpan();
    int wantedCount = 0;
    long wantedBytes = 0;
    for (int i = 0;
        i < count && wantedCount < wanted.length && wantedBytes < KeySource.MAX_KEY_BYTES;
        i++) {
      if (i > 0 && Arrays.equals(keys[i], keys[i - 1])) {
        continue;
      }
      key.set(keys[i]);
      int hash = Bytes.hash(key);
      if (!committed.keys.keepAnswer(of, written, hash, key)) {
        wanted[wantedCount] = keys[i];
        hashes[wantedCount++] = hash;
        wantedBytes += keys[i].length;
      }
    }
    if (wantedCount == 0) {
      return null;
    }
    if (singleReadsBefore < 0) {
      singleReadsBefore = committed.keys.singleReads();
    }
    Answer.Keys requested = new Answer.Keys(of, Arrays.copyOf(wanted, wantedCount), hashes);
    PendingRows reply = committed.keys.start(requested);
    return new Request(requested, reply, pending -> receiveKeys(requested, pending));
  }

  /**
   * Caches those keys that neither the cache nor the session's writes can answer, as far as memory
   * allows. No operator has announced their reads: the metrics of prefetch leave them out.
   */
  void fetch(int family, byte[][] keys, int count) {
    buffer.beginCall();
    CachedFamily of = committed.families.get(family);
    committed.keys.prefetch(of, buffer.writes.get(of), keys, count);
  }

  /**
   * Requests the rows of those prefixes that are not here yet, sorted and each once, and returns
   * without the reply. The rows are kept until those of some further requests have come.
   *
   * @param prefixes is sorted by this call; at most {@link #MAX_PREFETCH_KEYS} of them are used
   * @return null if no prefix needs a request
   */
  public Request startPrefixes(int family, byte[][] prefixes, int count) {
    buffer.beginCall();
    if (committed.refills.runIfWorthwhile() && !isUseful(family)) {
      return null;
    }
    CachedFamily of = committed.families.get(family);
    KeySort.sort(prefixes, count);
    byte[][] from = new byte[Math.min(count, MAX_PREFETCH_KEYS)][];
    byte[][] to = new byte[from.length][];
    int wanted = 0;
    long wantedBytes = 0;
    for (int i = 0;
        i < count && wanted < from.length && wantedBytes < KeySource.MAX_KEY_BYTES;
        i++) {
      byte[] end = Bytes.successor(prefixes[i]);
      byte[] endBefore = wanted == 0 ? null : to[wanted - 1];
      boolean overlaps =
          wanted > 0 && (endBefore == null || Arrays.compareUnsigned(prefixes[i], endBefore) < 0);
      if (!overlaps && !answers.has(of, prefixes[i], end)) {
        from[wanted] = prefixes[i];
        to[wanted++] = end;
        wantedBytes += prefixes[i].length;
      }
    }
    if (wanted == 0) {
      return null;
    }
    Answer.Ranges requested =
        new Answer.Ranges(of, Arrays.copyOf(from, wanted), Arrays.copyOf(to, wanted));
    PendingRows reply = committed.pages.startRanges(requested);
    return new Request(requested, reply, pending -> receiveRanges(requested, pending));
  }

  /**
   * Finds the value of a key without a request. False: the key is absent, or its value is not here.
   * The value is valid until the session's next call.
   */
  public boolean find(int family, ByteSpan key, ByteSpan out) {
    buffer.beginCall();
    int hash = Bytes.hash(key);
    CachedFamily of = committed.families.get(family);
    EntryMap in = buffer.writes.get(of);
    int address = in == null ? 0 : in.find(hash, key);
    if (address == 0) {
      in = of;
      address = in.find(hash, key);
    }
    if (address == 0 || Entry.has(in.slab(address), Slabs.at(address), Entry.SHADOWED)) {
      return findAnswer(of, key, out);
    }
    byte[] slab = in.slab(address);
    long at = Slabs.at(address);
    if (Entry.state(slab, at) != WriteBlock.PUT) {
      return false;
    }
    Entry.value(slab, at, out);
    return true;
  }

  /** Finds a value in a reply that is not cached: that of a key whose last write was spilled. */
  private boolean findAnswer(CachedFamily of, ByteSpan key, ByteSpan out) {
    Answer.Rows known = answers.find(of, key);
    if (known == null || known.first() == known.end()) {
      return false;
    }
    RowPage.unpad(known.page().paddedValue(known.first()), out);
    return true;
  }

  /** Keys and prefixes that were read for a coming read, also if they are absent. */
  public long hits() {
    return hits;
  }

  /** Keys and ranges that were still read alone, since the first request. */
  public long misses() {
    long keys = singleReadsBefore < 0 ? 0 : committed.keys.singleReads() - singleReadsBefore;
    return keys + answers.missedRanges();
  }

  /** Time for which the session waited for replies. */
  public long waitedMs() {
    return Math.round(waitedNs / 1e6);
  }
}
