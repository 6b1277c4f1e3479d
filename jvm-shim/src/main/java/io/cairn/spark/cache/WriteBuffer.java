package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.EntryCursor;
import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.MemoryPool;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.WriteBlock;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The writes of one session since its last spill, over the committed cache: one entry per key, with
 * its op and with whether the key is committed.
 *
 * <p>PUT and DELETE replace an earlier write of the key. APPEND after PUT stays PUT, after DELETE
 * becomes PUT, after APPEND stays APPEND. Memory for a write is reserved before its entry is added;
 * if there is none, all writes so far are spilled: sent to the engine and dropped.
 */
final class WriteBuffer {
  /** Above {@link MemoryPool#writeBytes}, a write buffer leaves one byte in so many free. */
  private static final int FREE_DIVISOR = 8;

  private final CommittedCache committed;
  private final MemoryAccount account;
  private final EngineSource source;

  /**
   * Of the last two reads: an operator that looks one row ahead writes a key after the next read.
   */
  private LastKey lastRead = new LastKey();

  private LastKey readBefore = new LastKey();

  /** Of the last write of a key that was not read; never remembered. */
  private final LastKey written = new LastKey();

  /** The key of this call: one of the three. */
  private LastKey last = written;

  /** Writes that are newer than those of {@link #families}. */
  private final WriteGroup latest = new WriteGroup();

  private final ByteSpan latestKey = new ByteSpan();
  private final ByteSpan latestValue = new ByteSpan();
  private final ByteSpan entryKey = new ByteSpan();
  private final ByteSpan entryValue = new ByteSpan();

  final ScannedKeys scanned = new ScannedKeys();

  private Writes[] families = new Writes[0];
  private volatile Phase phase = Phase.WRITING;
  private boolean isInconsistent;
  private long spillCount;

  /** By family: writes that were spilled, as {@link #expectedRows} counts them. */
  private final Map<Integer, Long> spilledRows = new HashMap<>();

  final OpenScans scans = new OpenScans();

  /** It only ascends. */
  private enum Phase {
    WRITING,
    /** All writes have been sent: none may follow, and another thread may fold them. */
    FINISHED,
    CLOSED
  }

  WriteBuffer(CommittedCache committed, EngineSource source) {
    this.committed = committed;
    this.account = committed.account;
    this.source = source;
  }

  /** Begins a call that is not a put or a removal: {@link #families} have all writes then. */
  void beginCall() {
    checkOpen();
    addLatest();
  }

  void checkOpen() {
    if (phase == Phase.CLOSED) {
      throw new IllegalStateException("[CAIRN_INTERNAL] the session of this version has ended");
    }
  }

  boolean isOpen() {
    return phase != Phase.CLOSED;
  }

  /** Whether writes may follow. If not, another thread may fold those that there are. */
  boolean takesWrites() {
    return phase == Phase.WRITING;
  }

  boolean isFinished() {
    return phase == Phase.FINISHED;
  }

  /** Begins the end of the session. REQUIRES: it is open. */
  void finish() {
    phase = Phase.FINISHED;
  }

  /**
   * Whether the engine may have a part of a frame, or the session lack a write: while writes are
   * sent before the commit, and for good if that fails. They can then neither be sent nor dropped.
   */
  boolean isInconsistent() {
    return isInconsistent;
  }

  long spillCount() {
    return spillCount;
  }

  /** The writes of a family; null if there are none. */
  Writes writes(int family) {
    return family < families.length ? families[family] : null;
  }

  private Writes writesFor(CachedFamily family) {
    Writes writes = writes(family.id);
    if (writes == null) {
      if (family.id >= families.length) {
        families = Arrays.copyOf(families, family.id + 1);
      }
      writes = new Writes(account);
      writes.expect(family.lastWriteCount);
      if (family.isOrdered) {
        writes.keepOrder();
      }
      families[family.id] = writes;
    }
    return writes;
  }

  /** Finds the value (or whole list) of a key. False: absent, and {@code out} is unchanged. */
  boolean get(CachedFamily family, ByteSpan key, ByteSpan out) {
    int address = findToRead(family, key);
    if (address == 0) {
      return getCommitted(family, key, out);
    }
    committed.countHit();
    byte[] slab = families[family.id].slab(address);
    long at = Slabs.at(address);
    byte state = Entry.state(slab, at);
    if (state == WriteBlock.APPEND) {
      getAppended(family, slab, at, out);
    } else if (state == WriteBlock.PUT) {
      Entry.value(slab, at, out);
    }
    return state != WriteBlock.DELETE;
  }

  boolean exists(CachedFamily family, ByteSpan key) {
    int address = findToRead(family, key);
    if (address == 0) {
      return getCommitted(family, key, entryValue);
    }
    committed.countHit();
    return Entry.state(families[family.id].slab(address), Slabs.at(address)) != WriteBlock.DELETE;
  }

  private boolean getCommitted(CachedFamily family, ByteSpan key, ByteSpan out) {
    boolean isPresent = committed.get(family, last.hash, key, out);
    last.presence = committed.lastPresence();
    return isPresent;
  }

  /** Finds the write of a key, and remembers the key. 0: there is none. */
  private int findToRead(CachedFamily family, ByteSpan key) {
    if (!recall(family, key)) {
      last = readBefore;
      readBefore = lastRead;
      lastRead = last;
      search(family, key, Bytes.hash(key));
      last.remember(family, key);
    }
    return last.address;
  }

  /** Finds the write of a key: hash, address and presence are in {@link #last}. */
  private int findToWrite(CachedFamily family, ByteSpan key) {
    if (!recall(family, key)) {
      last = written;
      search(family, key, Bytes.hash(key));
    }
    return last.address;
  }

  /** Makes {@link #last} the result of a key, if that is remembered. */
  private boolean recall(CachedFamily family, ByteSpan key) {
    if (lastRead.is(family, key)) {
      last = lastRead;
    } else if (readBefore.is(family, key)) {
      last = readBefore;
    } else {
      return false;
    }
    return true;
  }

  private void forgetReads() {
    lastRead.forget();
    readBefore.forget();
  }

  private void search(CachedFamily family, ByteSpan key, int hash) {
    last.forget();
    last.hash = hash;
    last.presence = LastKey.NOT_SEARCHED;
    Writes writes = writes(family.id);
    last.address = writes == null ? 0 : writes.find(hash, key);
  }

  /** Whether an APPEND entry has the whole list: there is no row below it. */
  boolean isWhole(CachedFamily family, byte[] slab, long at) {
    return Entry.presence(slab, at) == WriteBlock.MISSING && !family.hasSpilledWrites;
  }

  /** Reads the whole list of an APPEND entry: the committed or spilled elements and its own. */
  private void getAppended(CachedFamily family, byte[] slab, long at, ByteSpan out) {
    Entry.key(slab, at, entryKey);
    if (!isWhole(family, slab, at) && committed.get(family, Entry.hash(slab, at), entryKey, out)) {
      Entry.value(slab, at, entryValue);
      out.set(Bytes.join(out, entryValue));
    } else {
      Entry.value(slab, at, out);
    }
  }

  void put(CachedFamily family, ByteSpan key, ByteSpan value, boolean isVersioned) {
    checkSize(key.length + (long) value.length + (isVersioned ? 1 : 0));
    if (recall(family, key) || !collect(family, key, value, isVersioned)) {
      addPut(family, key, value, isVersioned);
    }
  }

  void remove(CachedFamily family, ByteSpan key) {
    if (recall(family, key) || !collect(family, key, null, false)) {
      addRemove(family, key);
    }
  }

  /**
   * Adds a write to {@link #latest}; null value: a removal. False: it is too large for that; its
   * key is searched. REQUIRES: the key is not remembered.
   */
  private boolean collect(CachedFamily family, ByteSpan key, ByteSpan value, boolean isVersioned) {
    if (latest.add(family, key, value, isVersioned)) {
      return true;
    }
    addLatest();
    if (latest.add(family, key, value, isVersioned)) {
      return true;
    }
    last = written;
    search(family, key, Bytes.hash(key));
    return false;
  }

  /** Adds the latest writes to those of their family. */
  void addLatest() {
    int count = latest.count();
    if (count == 0) {
      return;
    }
    CachedFamily family = latest.family();
    latest.touch(writes(family.id));
    latest.clear();
    try {
      for (int i = 0; i < count; i++) {
        boolean isRemoval = latest.get(i, latestKey, latestValue);
        last = written; // the key of a collected write is not remembered
        search(family, latestKey, latest.hash(i));
        if (isRemoval) {
          addRemove(family, latestKey);
        } else {
          addPut(family, latestKey, latestValue, latest.isVersioned(i));
        }
      }
    } catch (Throwable failure) {
      // The session lacks some of its writes: it must not be committed.
      isInconsistent = true;
      throw failure;
    }
  }

  /** Adds or replaces the write of the key of {@link #last}. */
  private void addPut(CachedFamily family, ByteSpan key, ByteSpan value, boolean isVersioned) {
    int gap = isVersioned ? 1 : 0;
    int length = value.length + gap;
    int address = place(family, key, length);
    Writes writes = families[family.id];
    byte[] slab = writes.slab(address);
    long at = Slabs.at(address);
    long to = Entry.valueAt(slab, at);
    if (isVersioned) {
      slab[(int) (to - Bytes.ARRAY)] = 0;
    }
    Bytes.copy(value, slab, to + gap);
    Entry.setValueLength(slab, at, length);
    writes.setOp(slab, at, WriteBlock.PUT);
  }

  void append(CachedFamily family, ByteSpan key, ByteSpan value) {
    checkSize(key.length + (long) value.length);
    while (!tryAppend(family, key, value)) {
      continue;
    }
  }

  /** False: the writes so far were spilled, and the caller must repeat the append. */
  private boolean tryAppend(CachedFamily family, ByteSpan key, ByteSpan value) {
    Writes writes = writesFor(family);
    int found = findToWrite(family, key);
    byte op = WriteBlock.APPEND;
    entryValue.length = 0;
    if (found != 0) {
      byte[] old = writes.slab(found);
      long oldAt = Slabs.at(found);
      op = Entry.state(old, oldAt);
      if (op == WriteBlock.DELETE) {
        op = WriteBlock.PUT;
      } else {
        Entry.value(old, oldAt, entryValue);
        checkSize(key.length + (long) entryValue.length + value.length);
      }
    }
    int before = entryValue.length;
    int address = tryPlace(family, key, before + value.length);
    if (address == 0) {
      return false;
    }
    byte[] slab = writes.slab(address);
    long at = Slabs.at(address);
    long to = Entry.valueAt(slab, at);
    if (address != found) {
      Bytes.copy(entryValue, slab, to);
    }
    Bytes.copy(value, slab, to + before);
    Entry.setValueLength(slab, at, before + value.length);
    writes.setOp(slab, at, op);
    return true;
  }

  /** Adds or replaces the write of the key of {@link #last}, if the removal has an effect. */
  private void addRemove(CachedFamily family, ByteSpan key) {
    if (last.address == 0
        && !family.hasSpilledWrites
        && presence(family, key) == WriteBlock.MISSING) {
      return;
    }
    int address = place(family, key, 0);
    Writes writes = families[family.id];
    writes.setOp(writes.slab(address), Slabs.at(address), WriteBlock.DELETE);
  }

  /** Refuses a row that is too large for a frame. */
  private void checkSize(long rowBytes) {
    if (rowBytes > WriteBlock.MAX_ROW_BYTES) {
      throw source.rowTooLarge(rowBytes);
    }
  }

  /** {@link #tryPlace}, repeated after a spill. */
  private int place(CachedFamily family, ByteSpan key, int valueLength) {
    int address;
    while ((address = tryPlace(family, key, valueLength)) == 0) {
      search(family, key, last.hash);
    }
    return address;
  }

  /**
   * Returns an entry for a write of the key of {@link #last}, which has capacity for its value: the
   * existing one, if that has it and no scan needs it, or a new one. 0: there was no memory, so the
   * writes so far were spilled; try again.
   */
  private int tryPlace(CachedFamily family, ByteSpan key, int valueLength) {
    int found = last.address;
    if (found == 0) {
      return insert(family, key, Entry.capacityFor(valueLength));
    }
    Writes writes = families[family.id];
    int former = writes.openScans == 0 ? 0 : writes.formerFor(found);
    int needed = valueLength + (former == 0 ? 0 : Entry.FORMER_BYTES);
    int capacity = Entry.capacity(writes.slab(found), Slabs.at(found));
    if (former != found && needed <= capacity) {
      return found;
    }
    // Grow by at least half, so that repeated growth is cheap.
    int least = former == found ? 0 : capacity + capacity / 2;
    int newCapacity = Entry.capacityFor(Math.max(needed, least));
    if (!reserve(writes.bytesToReplace(key.length, newCapacity))) {
      return 0;
    }
    last.address = writes.replace(found, newCapacity, former);
    return last.address;
  }

  /**
   * Adds an entry for the key of {@link #last}. 0: there was no memory, so the writes so far were
   * spilled; try again.
   */
  private int insert(CachedFamily family, ByteSpan key, int capacity) {
    byte presence = presence(family, key);
    Writes writes = writesFor(family);
    if (!reserve(writes.bytesToInsert(key.length, capacity))) {
      return 0;
    }
    int address = writes.insert(last.hash, key, capacity);
    byte[] slab = writes.slab(address);
    long at = Slabs.at(address);
    Entry.setEpoch(slab, at, writes.epoch);
    Entry.setPresence(slab, at, presence);
    last.address = address;
    return address;
  }

  /** Presence of the committed key of {@link #last}, as far as the cache knows it. */
  private byte presence(CachedFamily family, ByteSpan key) {
    if (last.presence == LastKey.NOT_SEARCHED) {
      last.presence = committed.presence(family, last.hash, key);
    }
    if (last.presence == WriteBlock.UNKNOWN && scanned.has(family, key)) {
      last.presence = WriteBlock.PRESENT;
    }
    return last.presence;
  }

  /** Reserves memory for a write. False: there was none, and all writes so far were spilled. */
  private boolean reserve(long needed) {
    return needed == 0 || reserveOrSpill(needed);
  }

  private boolean reserveOrSpill(long needed) {
    scans.closeAbandoned();
    MemoryPool pool = account.pool();
    long held = 0;
    boolean isEmpty = true;
    for (Writes writes : families) {
      held += writes == null ? 0 : writes.bytes();
      isEmpty &= writes == null || writes.count() == 0;
    }
    boolean mayEvict = held == 0 || needed <= pool.writeBytes() - held;
    boolean isFree = mayEvict || pool.freeBytes() - needed >= pool.limitBytes() / FREE_DIVISOR;
    if (isFree && account.tryReserve(needed)) {
      return true;
    }
    while (mayEvict && committed.eviction.freeMemoryFor(needed)) {
      if (account.tryReserve(needed)) {
        return true;
      }
    }
    if (isEmpty || needed <= pool.guaranteedBytes() - held) {
      account.reserveBeyondLimit(needed);
      return true;
    }
    spill();
    return false;
  }

  private void spill() {
    committed.endRefills(); // a session that has spilled refills nothing
    scans.beforeSpill();
    noteSpill(); // after the reads of the scans, which may add answers
    // Before the first block is sent: a session whose spill failed half-way must not be repeated.
    spillCount++;
    isInconsistent = true;
    send(new BlockWriter(block -> source.write(block, true)));
    forgetReads();
    for (int i = 0; i < families.length; i++) {
      if (families[i] != null) {
        spilledRows.merge(i, rowsOf(families[i]), Long::sum);
        shadow(committed.families.get(i), families[i]);
        retire(i);
      }
    }
    // Only now: writes that are sent, and still here, would be sent twice.
    isInconsistent = false;
  }

  private void noteSpill() {
    for (int i = 0; i < families.length; i++) {
      if (families[i] != null) {
        committed.answers.noteSpill(committed.families.get(i), families[i]);
      }
    }
  }

  /** Hides the committed entries of spilled keys until the session ends. */
  private void shadow(CachedFamily family, Writes writes) {
    for (EntryCursor entries = writes.cursor(false); entries.next(); ) {
      family.hasSpilledWrites = true;
      int address = family.findSameKey(entries.slab, entries.at);
      if (address != 0) {
        family.shadow(family.slab(address), Slabs.at(address));
      }
    }
  }

  private void retire(int family) {
    families[family].retire();
    families[family] = null;
  }

  private void send(BlockWriter writer) {
    for (int i = 0; i < families.length; i++) {
      if (families[i] != null) {
        boolean all = committed.families.get(i).hasSpilledWrites;
        for (EntryCursor entries = families[i].cursor(false); entries.next(); ) {
          writer.add(i, entries.slab, entries.at, all);
        }
      }
    }
    writer.flush();
  }

  /** Sends the drops of families, and all writes since the last spill. */
  void send(List<Integer> droppedFamilies) {
    BlockWriter writer = new BlockWriter(block -> source.write(block, false));
    droppedFamilies.forEach(writer::dropFamily);
    send(writer);
  }

  /**
   * The number of writes that the commit must have, except deletes of absent keys: those that were
   * spilled, and those that are here. Counted apart from what is sent, so that the engine can
   * compare both.
   */
  long expectedRows() {
    long rows = 0;
    for (long spilled : spilledRows.values()) {
      rows += spilled;
    }
    for (Writes writes : families) {
      rows += writes == null ? 0 : rowsOf(writes);
    }
    return rows;
  }

  private static long rowsOf(Writes writes) {
    return writes.count() - writes.absentDeletes;
  }

  /** Drops all writes of a family, also those that were spilled. */
  void dropFamily(int id) {
    spilledRows.remove(id);
    forgetReads();
    if (writes(id) != null) {
      retire(id);
    }
  }

  /** Moves all writes into the committed cache. */
  void foldInto(Fold fold) {
    for (int i = 0; i < families.length; i++) {
      if (families[i] != null) {
        CachedFamily family = committed.families.get(i);
        family.lastWriteCount = families[i].count();
        fold.add(family, families[i]);
        retire(i);
      }
    }
  }

  /** Frees everything; the session has ended. */
  void close() {
    phase = Phase.CLOSED;
    latest.clear();
    scans.end();
    forgetReads();
    scanned.forget();
    latestKey.clear();
    latestValue.clear();
    entryKey.clear();
    entryValue.clear();
    for (int i = 0; i < families.length; i++) {
      if (families[i] != null) {
        retire(i);
      }
    }
  }
}
