package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.PendingRows;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.WriteBlock;
import java.util.Arrays;

/**
 * Requests the keys of coming reads in bulk, and caches the replies, while the session goes on.
 *
 * <p>A hint: it changes no result of a read. A reply is not used if the session has spilled since
 * its request: it may be outdated. Threads: as the session.
 */
public final class Prefetcher {
  /** Bound of one request's keys; the keys above it are read when they are needed. */
  private static final int MAX_KEY_BYTES = 4 << 20;

  private final CommittedCache committed;
  private final WriteBuffer buffer;
  private long hits;
  private long waitedNs;

  /** Reads of single keys before the first request; -1: there was no request. */
  private long singleReadsBefore = -1;

  /** Keys that were requested and whose reply is not cached yet. */
  public final class Request {
    private final CachedFamily family;
    private final byte[][] keys;
    private final int[] hashes;
    private final PendingRows reply;
    private final long spillsSeen = buffer.spillCount();

    private Request(CachedFamily family, byte[][] keys, int[] hashes) {
      this.family = family;
      this.keys = keys;
      this.hashes = hashes;
      reply = committed.start(family, keys, keys.length);
    }

    /**
     * Waits for the reply and caches it as far as memory allows. A reply that was lost, or that may
     * be outdated, is requested again. Called once.
     */
    public void finish() {
      long startedNs = System.nanoTime();
      RowPage rows = reply.take();
      if (isOpen()) {
        hits +=
            rows != null && spillsSeen == buffer.spillCount()
                ? committed.cacheReply(family, keys, hashes, rows)
                : committed.prefetch(family, buffer.writes(family.id), keys, keys.length);
      }
      waitedNs += System.nanoTime() - startedNs;
    }

    private boolean isOpen() {
      return buffer.isOpen()
          && committed.families.isDefined(family.id)
          && committed.families.get(family.id) == family;
    }
  }

  Prefetcher(CommittedCache committed, WriteBuffer buffer) {
    this.committed = committed;
    this.buffer = buffer;
  }

  /** Whether reads of a family may need the engine. */
  public boolean isUseful(int family) {
    return buffer.isOpen()
        && committed.families.isDefined(family)
        && !committed.families.get(family).knowsAbsentKeys();
  }

  /**
   * Requests those keys that neither the cache nor the session's writes can answer, sorted and each
   * once, and returns without the reply.
   *
   * @param keys is sorted by this call; at most {@link CommittedCache#MAX_KEYS} of them are used
   * @return null if no key needs a request
   */
  public Request start(int family, byte[][] keys, int count) {
    buffer.checkOpen();
    if (committed.refillIfWorthwhile() && !isUseful(family)) {
      return null;
    }
    CachedFamily of = committed.families.get(family);
    WriteBuffer.Writes written = buffer.writes(family);
    Arrays.sort(keys, 0, count, Arrays::compareUnsigned);
    byte[][] wanted = new byte[Math.min(count, CommittedCache.MAX_KEYS)][];
    int[] hashes = new int[wanted.length];
    ByteSpan key = new ByteSpan();
    int wantedCount = 0;
    long wantedBytes = 0;
    for (int i = 0; i < count && wantedCount < wanted.length && wantedBytes < MAX_KEY_BYTES; i++) {
      if (i > 0 && Arrays.equals(keys[i], keys[i - 1])) {
        continue;
      }
      key.set(keys[i]);
      int hash = Bytes.hash(key);
      if (!committed.isAnswered(of, written, hash, key)) {
        wanted[wantedCount] = keys[i];
        hashes[wantedCount++] = hash;
        wantedBytes += keys[i].length;
      }
    }
    if (wantedCount == 0) {
      return null;
    }
    if (singleReadsBefore < 0) {
      singleReadsBefore = committed.singleReads();
    }
    return new Request(of, Arrays.copyOf(wanted, wantedCount), hashes);
  }

  /**
   * Finds the value of a key without a request. False: the key is absent, or its value is not here.
   * The value is valid until the session's next call.
   */
  public boolean find(int family, ByteSpan key, ByteSpan out) {
    buffer.checkOpen();
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

  /** Keys that were cached for a coming read, as values or as absent. */
  public long hits() {
    return hits;
  }

  /** Keys that were still read alone, since the first request. */
  public long misses() {
    return singleReadsBefore < 0 ? 0 : committed.singleReads() - singleReadsBefore;
  }

  /** Time for which the session waited for replies. */
  public long waitedMs() {
    return waitedNs / 1_000_000;
  }
}
