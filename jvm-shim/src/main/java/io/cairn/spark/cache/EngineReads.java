package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;
import io.cairn.spark.protocol.WriteBlock;
import java.util.Arrays;
import org.apache.spark.unsafe.Platform;

/** What a session asks the engine, and what of the answers the base keeps. */
final class EngineReads {
  private static final int MAX_KEYS = 4096;

  private final StateCache cache;
  private final CommittedCache base;
  private final EngineSource source;

  EngineReads(StateCache cache, CommittedCache base, EngineSource source) {
    this.cache = cache;
    this.base = base;
    this.source = source;
  }

  /**
   * Version that the engine must have applied before it answers: a complete family does not
   * remember what it deleted, and a spilled append stands on a committed list that only the base
   * may hold.
   */
  private long requireFor(CachedFamily family) {
    return family.complete || family.spilled ? base.version : base.requireApplied();
  }

  /** Reads one key; of a list all of it. False: absent. */
  boolean get(
      CachedFamily family, int hash, Object keyBase, long keyOffset, int keyLength, ByteSpan out) {
    byte[][] keys = {Bytes.toArray(keyBase, keyOffset, keyLength)};
    cache.misses++;
    RowPage rows = ask(family, keys, 1);
    int length = rows.valueLength[0];
    byte origin = rows.origin[0];
    boolean present = origin == RowPage.COMMITTED || origin == RowPage.SPILL;
    int address = keep(family, hash, keys[0], rows, 0);
    if (!present) {
      return false;
    }
    if (address != 0) {
      byte[] slab = family.slab(address);
      out.set(slab, Entry.value(slab, Slabs.at(address)), length);
    } else {
      // As in a slab: what follows the version byte is 8-aligned.
      byte[] copy = new byte[Math.addExact(length, 7)];
      Platform.copyMemory(
          rows.data, Bytes.ARRAY + rows.valueOffset[0], copy, Bytes.ARRAY + 7, length);
      out.set(copy, Bytes.ARRAY + 7, length);
    }
    return true;
  }

  /** Asks for keys; of large values fewer come than were asked for, but at least one. */
  private RowPage ask(CachedFamily family, byte[][] keys, int count) {
    RowPage rows = source.get(family.id, keys, count, requireFor(family));
    base.eviction().applied = source.appliedThrough();
    if (rows.count > count || rows.count < 1 || rows.more != (rows.count < count)) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the engine answered "
              + rows.count
              + " of "
              + count
              + " keys"
              + (rows.more ? " and says that more follow" : ""));
    }
    return rows;
  }

  /** Only what is committed enters the base; a spilled row is not yet. */
  private int keep(CachedFamily family, int hash, byte[] key, RowPage rows, int row) {
    if (rows.origin[row] == RowPage.COMMITTED) {
      return base.fill(family, hash, key, rows.data, rows.valueOffset[row], rows.valueLength[row]);
    }
    return rows.origin[row] == RowPage.ABSENT ? base.fill(family, hash, key, rows.data, 0, -1) : 0;
  }

  /** Reads keys in bulk into the base: those that neither it nor the overlay answers. */
  void prefetch(CachedFamily family, EntryMap overlay, byte[][] keys, int count) {
    byte[][] wanted = new byte[Math.min(count, MAX_KEYS)][];
    int[] hashes = new int[wanted.length];
    int waiting = 0;
    for (int i = 0; i < count && !family.complete; i++) {
      byte[] key = keys[i];
      int hash = Bytes.hash(key, Bytes.ARRAY, key.length);
      if (family.find(hash, key, Bytes.ARRAY, key.length) != 0 || isSettled(overlay, hash, key)) {
        continue;
      }
      wanted[waiting] = key;
      hashes[waiting++] = hash;
      if (waiting == wanted.length) {
        fetch(family, wanted, hashes, waiting);
        waiting = 0;
      }
    }
    if (waiting > 0) {
      fetch(family, wanted, hashes, waiting);
    }
  }

  private static boolean isSettled(EntryMap overlay, int hash, byte[] key) {
    int address = overlay == null ? 0 : overlay.find(hash, key, Bytes.ARRAY, key.length);
    return address != 0
        && Entry.state(overlay.slab(address), Slabs.at(address)) != WriteBlock.APPEND;
  }

  private void fetch(CachedFamily family, byte[][] keys, int[] hashes, int count) {
    cache.misses += count;
    for (int done = 0; done < count; ) {
      byte[][] rest = done == 0 ? keys : Arrays.copyOfRange(keys, done, count);
      RowPage rows = ask(family, rest, count - done);
      for (int i = 0; i < rows.count; i++) {
        keep(family, hashes[done + i], rest[i], rows, i);
      }
      done += rows.count;
    }
  }

  /** A page of committed and spilled rows, as a copy of the caller's own. */
  RowPage page(
      CachedFamily family,
      byte[] from,
      boolean inclusive,
      byte[] to,
      int limitRows,
      int limitBytes) {
    RowPage rows =
        source.scan(
            new ScanRequest(family.id, from, inclusive, to, limitRows, limitBytes), base.version);
    base.eviction().applied = source.appliedThrough();
    if (rows.count == 0 && rows.more) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the engine sent an empty page and says that more follows");
    }
    return rows.copy();
  }

  /** Offers all committed rows to a load, family by family. */
  boolean loadInto(BulkLoad load, int limitRows, int limitBytes) {
    boolean whole = true;
    try {
      for (int i = 0; i < base.end() && whole; i++) {
        whole = !base.isDefined(i) || loadFamily(load, base.family(i), limitRows, limitBytes);
      }
    } catch (Throwable failure) {
      load.finish(false);
      throw failure;
    }
    return load.finish(whole);
  }

  private boolean loadFamily(BulkLoad load, CachedFamily family, int limitRows, int limitBytes) {
    byte[] from = null;
    while (true) {
      RowPage rows =
          source.scan(
              new ScanRequest(family.id, from, from == null, null, limitRows, limitBytes),
              base.version);
      if (!load.add(family.id, rows)) {
        return false;
      }
      if (!rows.more) {
        return true;
      }
      int last = rows.count - 1;
      from = Bytes.toArray(rows.data, Bytes.ARRAY + rows.keyOffset[last], rows.keyLength[last]);
    }
  }
}
