package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.Entry;
import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.MemoryPool;
import io.cairn.spark.cache.memory.Slabs;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.WriteBlock;
import java.util.List;

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

  private final RecentKeys recent = new RecentKeys();
  final WritesByFamily writes;

  /** Writes that are newer than {@link #writes}. */
  private final WriteGroup latest = new WriteGroup();

  private final ByteSpan latestKey = new ByteSpan();
  private final ByteSpan latestValue = new ByteSpan();
  private final ByteSpan entryKey = new ByteSpan();
  private final ByteSpan entryValue = new ByteSpan();

  final ScannedKeys scanned = new ScannedKeys();
  final OpenScans scans = new OpenScans();
  private volatile Phase phase = Phase.WRITING;
  private boolean isInconsistent;
  private long spillCount;

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
    writes = new WritesByFamily(committed.families, account);
  }

  /** Begins a call that is not a put or a removal: {@link #writes} has all writes then. */
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

  /** Finds the value (or whole list) of a key. False: absent, and {@code out} is unchanged. */
  boolean get(CachedFamily family, ByteSpan key, ByteSpan out) {
    int address = findToRead(family, key);
    if (address == 0) {
      return getCommitted(family, key, out);
    }
    committed.countHit();
    byte[] slab = writes.get(family).slab(address);
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
    return Entry.state(writes.get(family).slab(address), Slabs.at(address)) != WriteBlock.DELETE;
  }

  private int findToRead(CachedFamily family, ByteSpan key) {
    return recent.findToRead(family, key, writes.get(family)).address;
  }

  private boolean getCommitted(CachedFamily family, ByteSpan key, ByteSpan out) {
    LastKey last = recent.last();
    boolean isPresent = committed.get(family, last.hash, key, out);
    last.presence = committed.lastPresence();
    return isPresent;
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
    if (recent.recall(family, key) || !collect(family, key, value, isVersioned)) {
      addPut(family, key, value, isVersioned);
    }
  }

  void remove(CachedFamily family, ByteSpan key) {
    if (recent.recall(family, key) || !collect(family, key, null, false)) {
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
    recent.search(key, Bytes.hash(key), writes.get(family));
    return false;
  }

  /** Adds the latest writes to those of their family. */
  void addLatest() {
    int count = latest.count();
    if (count == 0) {
      return;
    }
    CachedFamily family = latest.family();
    latest.touch(writes.get(family));
    latest.clear();
    try {
      for (int i = 0; i < count; i++) {
        boolean isRemoval = latest.get(i, latestKey, latestValue);
        // The key of a collected write is not remembered.
        recent.search(latestKey, latest.hash(i), writes.get(family));
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

  /** Adds or replaces the write of the key of the call. */
  private void addPut(CachedFamily family, ByteSpan key, ByteSpan value, boolean isVersioned) {
    int gap = isVersioned ? 1 : 0;
    int length = value.length + gap;
    int address = place(family, key, length);
    Writes ofFamily = writes.get(family);
    byte[] slab = ofFamily.slab(address);
    long at = Slabs.at(address);
    long to = Entry.valueAt(slab, at);
    if (isVersioned) {
      slab[(int) (to - Bytes.ARRAY)] = 0;
    }
    Bytes.copy(value, slab, to + gap);
    Entry.setValueLength(slab, at, length);
    ofFamily.setOp(slab, at, WriteBlock.PUT);
  }

  void append(CachedFamily family, ByteSpan key, ByteSpan value) {
    checkSize(key.length + (long) value.length);
    while (!tryAppend(family, key, value)) {
      continue;
    }
  }

  /** False: the writes so far were spilled, and the caller must repeat the append. */
  private boolean tryAppend(CachedFamily family, ByteSpan key, ByteSpan value) {
    Writes ofFamily = writes.getOrAdd(family);
    int found = recent.findToWrite(family, key, ofFamily).address;
    byte op = WriteBlock.APPEND;
    entryValue.length = 0;
    if (found != 0) {
      byte[] old = ofFamily.slab(found);
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
    byte[] slab = ofFamily.slab(address);
    long at = Slabs.at(address);
    long to = Entry.valueAt(slab, at);
    if (address != found) {
      Bytes.copy(entryValue, slab, to);
    }
    Bytes.copy(value, slab, to + before);
    Entry.setValueLength(slab, at, before + value.length);
    ofFamily.setOp(slab, at, op);
    return true;
  }

  /** Adds or replaces the write of the key of the call, if the removal has an effect. */
  private void addRemove(CachedFamily family, ByteSpan key) {
    if (recent.last().address == 0
        && !family.hasSpilledWrites
        && presence(family, key) == WriteBlock.MISSING) {
      return;
    }
    int address = place(family, key, 0);
    Writes ofFamily = writes.get(family);
    ofFamily.setOp(ofFamily.slab(address), Slabs.at(address), WriteBlock.DELETE);
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
      recent.searchAgain(key, writes.get(family));
    }
    return address;
  }

  /**
   * Returns an entry for a write of the key of the call, which has capacity for its value: the
   * existing one, if that has it and no scan needs it, or a new one. 0: there was no memory, so the
   * writes so far were spilled; try again.
   */
  private int tryPlace(CachedFamily family, ByteSpan key, int valueLength) {
    LastKey last = recent.last();
    int found = last.address;
    if (found == 0) {
      return insert(family, key, Entry.capacityFor(valueLength));
    }
    Writes ofFamily = writes.get(family);
    int former = ofFamily.openScans == 0 ? 0 : ofFamily.formerFor(found);
    int needed = valueLength + (former == 0 ? 0 : Entry.FORMER_BYTES);
    int capacity = Entry.capacity(ofFamily.slab(found), Slabs.at(found));
    if (former != found && needed <= capacity) {
      return found;
    }
    // Grow by at least half, so that repeated growth is cheap.
    int least = former == found ? 0 : capacity + capacity / 2;
    int newCapacity = Entry.capacityFor(Math.max(needed, least));
    if (!reserve(ofFamily.bytesToReplace(key.length, newCapacity))) {
      return 0;
    }
    last.address = ofFamily.replace(found, newCapacity, former);
    return last.address;
  }

  /**
   * Adds an entry for the key of the call. 0: there was no memory, so the writes so far were
   * spilled; try again.
   */
  private int insert(CachedFamily family, ByteSpan key, int capacity) {
    byte presence = presence(family, key);
    Writes ofFamily = writes.getOrAdd(family);
    if (!reserve(ofFamily.bytesToInsert(key.length, capacity))) {
      return 0;
    }
    LastKey last = recent.last();
    int address = ofFamily.insert(last.hash, key, capacity);
    byte[] slab = ofFamily.slab(address);
    long at = Slabs.at(address);
    Entry.setEpoch(slab, at, ofFamily.epoch);
    Entry.setPresence(slab, at, presence);
    last.address = address;
    return address;
  }

  /** Presence of the committed key of the call, as far as the cache knows it. */
  private byte presence(CachedFamily family, ByteSpan key) {
    LastKey last = recent.last();
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
    long held = writes.bytes();
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
    if (writes.isEmpty() || needed <= pool.guaranteedBytes() - held) {
      account.reserveBeyondLimit(needed);
      return true;
    }
    spill();
    return false;
  }

  private void spill() {
    committed.refills.forbid(); // a session that has spilled refills nothing
    scans.beforeSpill();
    writes.outdate(committed.answers); // after the reads of the scans, which may add answers
    // Before the first block is sent: a session whose spill failed half-way must not be repeated.
    spillCount++;
    isInconsistent = true;
    writes.send(new BlockWriter(block -> source.write(block, true)));
    recent.forget();
    writes.dropSpilled();
    // Only now: writes that are sent, and still here, would be sent twice.
    isInconsistent = false;
  }

  /** Sends the drops of families, and all writes since the last spill. */
  void send(List<Integer> droppedFamilies) {
    BlockWriter writer = new BlockWriter(block -> source.write(block, false));
    droppedFamilies.forEach(writer::dropFamily);
    writes.send(writer);
  }

  /** Drops all writes of a family, also those that were spilled. */
  void dropFamily(int id) {
    recent.forget();
    writes.drop(id);
  }

  /** Frees everything; the session has ended. */
  void close() {
    phase = Phase.CLOSED;
    latest.clear();
    scans.end();
    recent.forget();
    scanned.forget();
    latestKey.clear();
    latestValue.clear();
    entryKey.clear();
    entryValue.clear();
    writes.clear();
  }
}
