package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.WriteBlock;

/** What a session reads: its own writes, below them the base, else the engine. */
final class SessionReads {
  private final StateCache cache;
  private final EngineReads engine;

  SessionReads(StateCache cache, EngineReads engine) {
    this.cache = cache;
    this.engine = engine;
  }

  /** Finds a key's value; {@code writes} are those of the overlay, null if it has none. */
  boolean get(
      EntryMap writes,
      CachedFamily family,
      int hash,
      Object keyBase,
      long keyOffset,
      int keyLength,
      ByteSpan out) {
    int address = writes == null ? 0 : writes.find(hash, keyBase, keyOffset, keyLength);
    if (address == 0) {
      return getCommitted(family, hash, keyBase, keyOffset, keyLength, out);
    }
    cache.hits++;
    byte[] slab = writes.slab(address);
    long at = Slabs.at(address);
    byte state = Entry.state(slab, at);
    if (state == WriteBlock.DELETE) {
      return false;
    }
    if (state == WriteBlock.APPEND) {
      getAppended(family, hash, slab, at, out);
    } else {
      out.set(slab, Entry.value(slab, at), Entry.valueLength(slab, at));
    }
    return true;
  }

  /** The value below the overlay: committed, or spilled by this session. */
  boolean getCommitted(
      CachedFamily family, int hash, Object keyBase, long keyOffset, int keyLength, ByteSpan out) {
    int address = family.find(hash, keyBase, keyOffset, keyLength);
    if (address != 0) {
      byte[] slab = family.slab(address);
      long at = Slabs.at(address);
      if (!Entry.has(slab, at, Entry.SHADOWED)) {
        cache.hits++;
        if (!Entry.has(slab, at, Entry.REFERENCED)) {
          Entry.raise(slab, at, Entry.REFERENCED);
        }
        if (Entry.state(slab, at) == WriteBlock.DELETE) {
          return false;
        }
        out.set(slab, Entry.value(slab, at), Entry.valueLength(slab, at));
        return true;
      }
    } else if (family.knowsAbsent()) {
      cache.hits++;
      return false;
    }
    return engine.get(family, hash, keyBase, keyOffset, keyLength, out);
  }

  /** The whole list of an entry that appends: what stands below it and its own elements. */
  void getAppended(CachedFamily family, int hash, byte[] slab, long at, ByteSpan out) {
    boolean alone = Entry.presence(slab, at) == WriteBlock.MISSING && !family.spilled;
    long tail = Entry.value(slab, at);
    int tailLength = Entry.valueLength(slab, at);
    if (!alone && getCommitted(family, hash, slab, Entry.key(at), Entry.keyLength(slab, at), out)) {
      byte[] joined = Bytes.join(out.base, out.offset, out.length, slab, tail, tailLength);
      out.set(joined, Bytes.ARRAY, joined.length);
    } else {
      out.set(slab, tail, tailLength);
    }
  }
}
