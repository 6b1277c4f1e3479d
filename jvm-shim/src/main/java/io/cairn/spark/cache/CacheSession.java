package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.protocol.EngineSource;
import java.util.ArrayList;
import java.util.List;
import java.util.function.UnaryOperator;

/**
 * Reads and writes of the next version of a store: a write buffer over the committed cache.
 *
 * <p>One caller at a time, though not always on the same thread; a caller that changes the thread
 * publishes the session (by a lock or a volatile). The caller may reuse its argument spans after a
 * call.
 */
public final class CacheSession {
  private final CommittedCache committed;
  private final CachedFamilies families;
  private final WriteBuffer buffer;
  private final Runnable onEnd;

  /** Requests keys of coming reads while the session goes on. */
  public final Prefetcher prefetcher;

  private final IndexedReads indexed;

  /** Not final: a test acts within the fold, which walks it. */
  List<Integer> droppedFamilies = new ArrayList<>();

  private final List<Integer> createdFamilies = new ArrayList<>();

  /** Null unless assertions are enabled. */
  private final SessionMirror mirror = SessionMirror.ifAssertionsAreEnabled();

  private long reads;
  private long puts;
  private long removes;

  /**
   * @param onEnd is called once, after commit or abort
   */
  CacheSession(CommittedCache committed, EngineSource source, Runnable onEnd) {
    this.committed = committed;
    this.families = committed.families;
    this.buffer = new WriteBuffer(committed, source);
    this.onEnd = onEnd;
    this.prefetcher = new Prefetcher(committed, buffer);
    this.indexed = new IndexedReads(prefetcher);
  }

  /**
   * Finds the value of a key; in a multi-value family it is the whole list. False: absent, and
   * {@code out} is unchanged. The value is valid until the next write, commit or abort.
   */
  public boolean get(int family, ByteSpan key, ByteSpan out) {
    buffer.beginCall();
    reads++;
    CachedFamily from = families.get(family);
    indexed.beforeRead(from, key);
    return buffer.get(from, key, out);
  }

  public boolean exists(int family, ByteSpan key) {
    buffer.beginCall();
    reads++;
    return buffer.exists(families.get(family), key);
  }

  /**
   * Prefetches those keys that the cache cannot answer: one bulk request, as far as memory allows,
   * instead of one per later read.
   */
  public void prefetch(int family, byte[][] keys) {
    prefetcher.fetch(family, keys, keys.length);
  }

  /**
   * Tells that a family is an index of another one: reads that follow a scan of it are probably
   * those of the keys that its rows name. A hint.
   *
   * @param keyOf returns the key that a key of the index names; null: none
   */
  public void followIndex(int index, int rows, UnaryOperator<byte[]> keyOf) {
    indexed.add(index, rows, keyOf);
  }

  /**
   * Writes a value. {@code isVersioned}: a byte 0x00 is stored before the value, which is then
   * 8-aligned; a read returns that byte too.
   */
  public void put(int family, ByteSpan key, ByteSpan value, boolean isVersioned) {
    CachedFamily to = startWrite(family);
    puts++;
    if (mirror != null) {
      mirror.put(to, key, value, isVersioned);
    }
    buffer.put(to, key, value, isVersioned);
  }

  /**
   * Appends encoded elements to a key's list, or puts them if there is no list; reads nothing.
   * Multi-value families only.
   */
  public void append(int family, ByteSpan key, ByteSpan value) {
    CachedFamily to = startWrite(family);
    if (!to.isMulti) {
      throw new IllegalArgumentException(
          "[CAIRN_INTERNAL] an append to column family " + family + ", which holds single values");
    }
    puts++;
    if (mirror != null) {
      mirror.append(to, key);
    }
    buffer.beginCall();
    buffer.append(to, key, value);
  }

  public void remove(int family, ByteSpan key) {
    CachedFamily from = startWrite(family);
    removes++;
    if (mirror != null) {
      mirror.remove(from, key);
    }
    buffer.remove(from, key);
  }

  private CachedFamily startWrite(int family) {
    buffer.checkOpen();
    if (buffer.isFinished() || buffer.isInconsistent()) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] a write after the session's writes were finished, or after sending them"
              + " failed");
    }
    return families.get(family);
  }

  /** All rows of a family, in any order. */
  public RowCursor scan(int family) {
    buffer.beginCall();
    return new UnorderedScan(buffer, committed, families.get(family));
  }

  /**
   * Rows of an ordered family with {@code from <= key < to}, ascending by unsigned bytes; null: no
   * bound at that end.
   */
  public RowCursor range(int family, byte[] from, byte[] to) {
    buffer.beginCall();
    CachedFamily in = families.get(family);
    if (!in.isOrdered) {
      throw new IllegalArgumentException(
          "[CAIRN_INTERNAL] a range of column family " + family + ", which keeps no order");
    }
    return new OrderedScan(buffer, committed, in, indexed, from, to);
  }

  /**
   * Creates a family that the loaded version does not have: it has no committed key. Idempotent.
   */
  public void createFamily(int id, boolean isOrdered, boolean isMulti) {
    buffer.beginCall();
    boolean isNew = !families.isDefined(id);
    CachedFamily family = families.define(id, isOrdered, isMulti);
    if (isNew) {
      family.markComplete();
      createdFamilies.add(id);
    }
  }

  /** Drops a family with all its keys, when this session commits. */
  public void dropFamily(int id) {
    startWrite(id);
    buffer.beginCall();
    if (mirror != null) {
      mirror.drop(id);
    }
    buffer.dropFamily(id);
    droppedFamilies.add(id);
  }

  /**
   * Lets the session read the rows that the cache lacks: now if they are few, else when requests to
   * the engine have cost a part of what a refill costs. REQUIRES: {@link StateCache#expectRows}.
   */
  public void refillOnDemand() {
    buffer.beginCall();
    committed.refills.allow();
  }

  /**
   * Sends all writes that the engine does not have; no write may follow. A repeated call sends the
   * same writes again, to an engine that lost them, with those that it had received before.
   */
  public void sendWrites() {
    buffer.beginCall();
    if (buffer.isInconsistent()) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the session is finished after sending its writes failed");
    }
    buffer.finish();
    committed.refills.forbid();
    buffer.send(droppedFamilies);
  }

  /**
   * Folds the writes into the committed cache, which is then at this version, and ends the session.
   * After an error the cache is empty and has no version. REQUIRES: {@link #sendWrites}; the
   * version is durable.
   */
  public void commit(long version, String checkpointId) {
    buffer.checkOpen();
    if (!buffer.isFinished()) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] a commit before the session's writes were finished");
    }
    try {
      buffer.scans.end();
      Fold fold = new Fold(committed, version, checkpointId);
      droppedFamilies.forEach(families::remove);
      buffer.writes.foldInto(fold);
      fold.finish();
    } catch (Throwable failure) {
      emptyAfter(failure);
      throw failure;
    } finally {
      end();
    }
  }

  /**
   * Empties the cache: the next load starts with no entry. Open scans and spilled writes need none,
   * because the session ends next.
   */
  private void emptyAfter(Throwable failure) {
    try {
      families.reset(-1, null, false);
    } catch (Throwable other) {
      // No session begins without a version, which was dropped first.
      failure.addSuppressed(other);
    }
  }

  /**
   * Drops the session's writes and ends it; after an error of this call the cache is empty and has
   * no version. Idempotent; does nothing after commit.
   */
  public void abort() {
    if (!buffer.isOpen()) {
      return;
    }
    try {
      buffer.scans.end();
      committed.endShadows(false);
      // No version has them; a later session may create others under their ids.
      createdFamilies.forEach(families::remove);
    } catch (Throwable failure) {
      emptyAfter(failure);
      throw failure;
    } finally {
      end();
    }
  }

  private void end() {
    try {
      buffer.close();
    } finally {
      onEnd.run();
    }
  }

  /** Whether the engine has writes of this session that the cache has dropped. */
  public boolean hasSpilled() {
    return buffer.spillCount() > 0;
  }

  /** Whether the writes that the engine receives may have a key twice. */
  public boolean mayRepeatKeys() {
    buffer.addLatest();
    return hasSpilled();
  }

  /**
   * The number of rows that the commit must have, except deletes of absent keys, and except the
   * rows of families that the session drops; a drop counts as one.
   */
  public long expectedRows() {
    buffer.addLatest();
    return buffer.writes.expectedRows() + droppedFamilies.size();
  }

  /** A digest of the keys that the session's calls have left; null: assertions are disabled. */
  public Long expectedDigest() {
    return mirror == null ? null : mirror.digest();
  }

  long spillCount() {
    return buffer.spillCount();
  }

  /** Calls of {@link #get} and {@link #exists} so far. */
  public long reads() {
    return reads;
  }

  /** Calls of {@link #put} and {@link #append} so far. */
  public long puts() {
    return puts;
  }

  /** Calls of {@link #remove} so far. */
  public long removes() {
    return removes;
  }
}
