package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;

/**
 * The open scans of one session over ordered families, so that each finds the state at which it was
 * opened: before a write, the scans that may have its key still before them are told.
 *
 * <p>Mostly few are open. But user code may leave a scan without reading it to its end, one for
 * each key of a batch. So of more than a few scans a write finds those of its prefix in a map, and
 * a scan that nobody refers to is forgotten, with the writes that it keeps. The scans that were
 * opened last are referred to here, until they keep many writes.
 *
 * <p>Threads: as the session.
 */
final class OpenRanges {
  private static final int RECENT = 2;

  /** A scan, as the writes of its session know it. */
  interface Scan {
    /**
     * Keeps the write of a key that is about to be changed, if the scan has not passed the key.
     *
     * @param slab has the write; null: there is none
     */
    void beforeWrite(ByteSpan key, byte[] slab, long at);

    /** Reads what the spill that follows will hide. */
    void beforeSpill();
  }

  /** The range of an open scan, which its scan holds. */
  static final class Range {
    private final Scan scan;
    private final CachedFamily family;
    private final byte[] from;
    private final byte[] to;

    /** Null: this is one of the ranges that were opened last. */
    private Reference reference;

    private Range(Scan scan, CachedFamily family, byte[] from, byte[] to) {
      this.scan = scan;
      this.family = family;
      this.from = from;
      this.to = to;
    }
  }

  /** A range that is not among the recent ones. */
  private static final class Reference extends WeakReference<Range> {
    final CachedFamily family;

    /** Null: it is among the others. */
    byte[] prefix;

    Reference(Range range, ReferenceQueue<Range> left) {
      super(range, left);
      family = range.family;
    }
  }

  /** The scans of one family that are not among the recent ones. */
  private static final class OfFamily {
    /** Scans of prefixes by their prefix, of which none is the beginning of another. */
    final TreeMap<byte[], List<Reference>> prefixes = new TreeMap<>(Arrays::compareUnsigned);

    final List<Reference> others = new ArrayList<>();
  }

  private final Range[] recent = new Range[RECENT];
  private int recentCount;

  /** The place that the next scan takes if all are used. */
  private int next;

  private final Map<CachedFamily, OfFamily> earlier = new IdentityHashMap<>();
  private final ReferenceQueue<Range> left = new ReferenceQueue<>();

  boolean isEmpty() {
    return recentCount == 0 && earlier.isEmpty();
  }

  /** Adds a scan of a range; null: no bound at that end. */
  Range open(Scan scan, CachedFamily family, byte[] from, byte[] to) {
    int place = next;
    if (recentCount < RECENT) {
      for (place = 0; recent[place] != null; place++) {
        continue;
      }
      recentCount++;
    } else {
      addEarlier(recent[place]);
      next = (next + 1) % RECENT;
    }
    return recent[place] = new Range(scan, family, from, to);
  }

  /** Forgets the scan of a range as soon as nobody else refers to it. */
  void holdWeakly(Range range) {
    for (int i = 0; i < RECENT; i++) {
      if (recent[i] == range) {
        recent[i] = null;
        recentCount--;
        addEarlier(range);
      }
    }
  }

  private void addEarlier(Range range) {
    for (Object forgotten = left.poll(); forgotten != null; forgotten = left.poll()) {
      remove((Reference) forgotten);
    }
    OfFamily scans = earlier.computeIfAbsent(range.family, any -> new OfFamily());
    Reference added = new Reference(range, left);
    range.reference = added;
    byte[] from = range.from;
    boolean isPrefix = from != null && Arrays.equals(range.to, Bytes.successor(from));
    if (isPrefix && range.to != null && isApart(scans, from, range.to)) {
      added.prefix = from;
      scans.prefixes.computeIfAbsent(from, any -> new ArrayList<>(1)).add(added);
    } else {
      scans.others.add(added);
    }
  }

  /** Whether no other prefix begins with this one, or is the beginning of it. */
  private static boolean isApart(OfFamily scans, byte[] prefix, byte[] end) {
    byte[] after = scans.prefixes.higherKey(prefix);
    if (after != null && Arrays.compareUnsigned(after, end) < 0) {
      return false;
    }
    byte[] before = scans.prefixes.floorKey(prefix);
    return before == null
        || Arrays.equals(before, prefix)
        || !Arrays.equals(before, Arrays.copyOf(prefix, before.length));
  }

  /** Forgets the range of a scan that has ended. Idempotent. */
  void close(Range range) {
    for (int i = 0; i < RECENT; i++) {
      if (recent[i] == range) {
        recent[i] = null;
        recentCount--;
        return;
      }
    }
    if (range.reference != null) {
      remove(range.reference);
    }
  }

  private void remove(Reference ended) {
    OfFamily scans = earlier.get(ended.family);
    if (scans == null) {
      return;
    }
    if (ended.prefix == null) {
      scans.others.remove(ended);
    } else {
      List<Reference> ofPrefix = scans.prefixes.get(ended.prefix);
      if (ofPrefix != null && ofPrefix.remove(ended) && ofPrefix.isEmpty()) {
        scans.prefixes.remove(ended.prefix);
      }
    }
    if (scans.prefixes.isEmpty() && scans.others.isEmpty()) {
      earlier.remove(ended.family);
    }
  }

  /** Calls {@code act} for the open scans of a family whose range may have a key. */
  void forKey(CachedFamily family, ByteSpan key, Consumer<Scan> act) {
    for (Range range : recent) {
      if (range != null && range.family == family) {
        act.accept(range.scan);
      }
    }
    OfFamily scans = earlier.isEmpty() ? null : earlier.get(family);
    if (scans == null) {
      return;
    }
    forEach(scans.others, act);
    Map.Entry<byte[], List<Reference>> found =
        scans.prefixes.isEmpty() ? null : scans.prefixes.floorEntry(key.toArray());
    if (found != null) {
      forEach(found.getValue(), act);
    }
  }

  /** Calls {@code act} for all open scans. */
  void forAll(Consumer<Scan> act) {
    for (Range range : recent) {
      if (range != null) {
        act.accept(range.scan);
      }
    }
    for (OfFamily scans : earlier.values()) {
      forEach(scans.others, act);
      scans.prefixes.values().forEach(ofPrefix -> forEach(ofPrefix, act));
    }
  }

  private static void forEach(List<Reference> scans, Consumer<Scan> act) {
    for (Reference reference : scans) {
      Range range = reference.get();
      if (range != null) {
        act.accept(range.scan);
      }
    }
  }

  void clear() {
    Arrays.fill(recent, null);
    recentCount = 0;
    earlier.clear();
  }
}
