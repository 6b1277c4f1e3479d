package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.WriteBlock;
import java.util.ArrayList;
import java.util.List;

/**
 * Reads and writes of one version in the making: an overlay over the base.
 *
 * <p>One caller at a time, though not always the same thread; whoever changes the thread publishes
 * the session (a lock or a volatile). Keys and values are regions as for {@code Platform}; the
 * arguments may be reused once a call returns.
 */
public final class CacheSession {
  private static final int LOAD_ROWS = 65_536;
  private static final int LOAD_BYTES = 4 << 20;

  private final StateCache cache;
  private final CommittedCache base;
  private final EngineSource source;
  private final EngineReads engine;
  private final SessionReads reading;
  private final BlockWriter writer;
  private final List<WriteBuffer> retired = new ArrayList<>();
  private final List<Integer> dropped = new ArrayList<>();
  private final List<Integer> created = new ArrayList<>();
  private final ByteSpan unread = new ByteSpan();
  private WriteBuffer overlay;
  private volatile boolean open = true;
  private boolean written;
  private boolean finished;
  private boolean spillFailed;
  private long spillCount;
  private long reads;
  private long puts;
  private long removes;

  CacheSession(StateCache cache, CommittedCache base, EngineSource source) {
    this.cache = cache;
    this.base = base;
    this.source = source;
    this.engine = new EngineReads(cache, base, source);
    this.reading = new SessionReads(cache, engine);
    this.writer = new BlockWriter(cache.budget(), source);
    this.overlay = newOverlay();
  }

  private WriteBuffer newOverlay() {
    return new WriteBuffer(cache, source, cache.budget().limitBytes() / 4);
  }

  /**
   * Finds a key's value; of a multi-value family the whole list. False: absent, {@code out}
   * untouched.
   */
  public boolean get(int family, ByteSpan key, ByteSpan out) {
    checkOpen();
    reads++;
    int hash = Bytes.hash(key.base, key.offset, key.length);
    return read(base.family(family), hash, key.base, key.offset, key.length, out);
  }

  boolean read(
      CachedFamily family, int hash, Object keyBase, long keyOffset, int keyLength, ByteSpan out) {
    return reading.get(overlay.family(family.id), family, hash, keyBase, keyOffset, keyLength, out);
  }

  public boolean exists(int family, ByteSpan key) {
    checkOpen();
    reads++;
    CachedFamily in = base.family(family);
    int hash = Bytes.hash(key.base, key.offset, key.length);
    EntryMap writes = overlay.family(family);
    int address = writes == null ? 0 : writes.find(hash, key.base, key.offset, key.length);
    if (address != 0) {
      cache.hits++;
      return Entry.state(writes.slab(address), Slabs.at(address)) != WriteBlock.DELETE;
    }
    return reading.getCommitted(in, hash, key.base, key.offset, key.length, unread);
  }

  /**
   * Asks the engine in bulk for those of the keys that the cache cannot answer; later reads of them
   * then need no engine, as far as room allows.
   */
  public void getMany(int family, byte[][] keys, int count) {
    checkOpen();
    prefetch(base.family(family), keys, count);
  }

  /** The whole list of an entry that appends: what stands reading it and its own elements. */
  void readAppended(CachedFamily family, int hash, byte[] slab, long at, ByteSpan out) {
    reading.getAppended(family, hash, slab, at, out);
  }

  void prefetch(CachedFamily family, byte[][] keys, int count) {
    engine.prefetch(family, overlay.family(family.id), keys, count);
  }

  RowPage page(
      CachedFamily family,
      byte[] from,
      boolean inclusive,
      byte[] to,
      int limitRows,
      int limitBytes) {
    return engine.page(family, from, inclusive, to, limitRows, limitBytes);
  }

  /** The family's writes since the last spill; null if there are none. */
  EntryMap writes(CachedFamily family) {
    return overlay.family(family.id);
  }

  long spillCount() {
    return spillCount;
  }

  /**
   * Writes a value. {@code versioned}: a byte 0x00 is stored before the region, which then lies
   * 8-aligned; the value read back includes that byte.
   */
  public void put(int family, ByteSpan key, ByteSpan value, boolean versioned) {
    CachedFamily to = startWrite(family);
    puts++;
    int hash = Bytes.hash(key.base, key.offset, key.length);
    while (!overlay.put(
        to,
        hash,
        key.base,
        key.offset,
        key.length,
        value.base,
        value.offset,
        value.length,
        versioned)) {
      makeRoom();
    }
    overlay.unbounded = false;
  }

  /**
   * Adds encoded elements at the end of a key's list; a put if there is none. Never reads.
   * Multi-value families only.
   */
  public void append(int family, ByteSpan key, ByteSpan value) {
    CachedFamily to = startWrite(family);
    if (!to.multi) {
      throw new IllegalArgumentException(
          "[CAIRN_INTERNAL] an append to column family " + family + ", which holds single values");
    }
    puts++;
    int hash = Bytes.hash(key.base, key.offset, key.length);
    while (!overlay.append(
        to, hash, key.base, key.offset, key.length, value.base, value.offset, value.length)) {
      makeRoom();
    }
    overlay.unbounded = false;
  }

  public void remove(int family, ByteSpan key) {
    CachedFamily to = startWrite(family);
    removes++;
    int hash = Bytes.hash(key.base, key.offset, key.length);
    while (!overlay.remove(to, hash, key.base, key.offset, key.length)) {
      makeRoom();
    }
    overlay.unbounded = false;
  }

  private CachedFamily startWrite(int family) {
    checkOpen();
    if (finished || spillFailed) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] a write after the session's writes were finished, or after sending them"
              + " failed");
    }
    written = true;
    return base.family(family);
  }

  /**
   * The overlay has no room for the next write: spills it, or if it holds nothing lets that one
   * write exceed the bound.
   */
  private void makeRoom() {
    if (overlay.isEmpty()) {
      overlay.unbounded = true;
    } else {
      spill();
    }
  }

  private void spill() {
    // Counted before the first block leaves: a session whose spill failed half-way must not be
    // repeated.
    spillCount++;
    spillFailed = true;
    writer.spills(true);
    sendOverlay();
    writer.spills(false);
    spillFailed = false;
    overlay.shadow(base);
    cache.spills++;
    retired.add(overlay);
    overlay.retire();
    retired.removeIf(WriteBuffer::isFree);
    overlay = newOverlay();
  }

  private void sendOverlay() {
    overlay.addTo(writer, base);
    writer.flush();
  }

  /** All rows of a family, in any order. */
  public RowCursor scan(int family) {
    checkOpen();
    return new UnorderedScan(this, base.family(family), overlay);
  }

  /**
   * Rows of an ordered family with {@code from <= key < to}, ascending by unsigned bytes; null
   * leaves that end open.
   */
  public RowCursor range(int family, byte[] from, byte[] to) {
    checkOpen();
    CachedFamily in = base.family(family);
    if (!in.ordered) {
      throw new IllegalArgumentException(
          "[CAIRN_INTERNAL] a range of column family " + family + ", which keeps no order");
    }
    return new OrderedScan(this, in, from, to);
  }

  /** Makes a family that the loaded version does not have: it has no committed key. Idempotent. */
  public void createFamily(int id, boolean ordered, boolean multi) {
    checkOpen();
    boolean isNew = !base.isDefined(id);
    CachedFamily family = base.define(id, ordered, multi);
    if (isNew) {
      family.markComplete();
      created.add(id);
    }
  }

  /** Drops a family with all its keys, when this session commits. */
  public void dropFamily(int id) {
    startWrite(id);
    overlay.dropFamily(id);
    dropped.add(id);
  }

  /**
   * Fills the base with the whole committed state through the session's source, before any write.
   * True: all families are complete now.
   */
  public boolean loadCommitted() {
    checkOpen();
    return engine.loadInto(cache.startLoad(), LOAD_ROWS, LOAD_BYTES);
  }

  /**
   * Sends all writes that were not spilled; no write may follow. Sends the same again when it is
   * called again, for an engine that lost them.
   */
  public void sendWrites() {
    checkOpen();
    if (spillFailed) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the session goes on after sending its writes failed");
    }
    finished = true;
    for (int family : dropped) {
      writer.dropFamily(family);
    }
    sendOverlay();
  }

  /**
   * Folds the overlay into the base, restamps it and ends the session. To be called once the
   * version is durable, after {@link #sendWrites}.
   */
  public void commit(long version, String id) {
    checkOpen();
    if (!finished) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] a commit before the session's writes were finished");
    }
    try {
      fold(version, id);
    } catch (Throwable failure) {
      // The version is durable, but the base is in doubt: the next load starts from nothing.
      overlay.clear();
      base.clear();
      throw failure;
    } finally {
      end();
    }
  }

  private void fold(long version, String id) {
    base.version = version;
    base.id = id;
    base.eviction().applied = source.appliedThrough();
    endScans();
    for (int family : dropped) {
      base.remove(family);
    }
    base.yieldSpilled();
    overlay.fold(base);
    base.endShadows(true);
    base.eviction().compact();
  }

  /** Forgets the session's writes and ends it. Idempotent; does nothing after commit. */
  public void abort() {
    if (open) {
      endScans();
      overlay.clear();
      base.endShadows(false);
      // No version has them; a later session may create others under their ids.
      created.forEach(base::remove);
      end();
    }
  }

  private void endScans() {
    for (WriteBuffer kept : retired) {
      kept.clear();
    }
    retired.clear();
    base.endWalks();
  }

  private void end() {
    open = false;
    cache.end();
  }

  void checkOpen() {
    if (!open) {
      throw new IllegalStateException("[CAIRN_INTERNAL] the session of this version has ended");
    }
  }

  /** Whether this session sent writes to the engine that the cache does not have any more. */
  public boolean hasSpilled() {
    return spillCount > 0;
  }

  /** Whether nothing was written yet. */
  public boolean isClean() {
    return !written;
  }

  public boolean isOpen() {
    return open;
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
