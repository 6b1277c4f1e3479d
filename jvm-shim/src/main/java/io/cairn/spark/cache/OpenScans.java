package io.cairn.spark.cache;

import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;

/**
 * The open scans of one session, and what is held for each: the writes that it sees, and the slabs
 * of a cached family that it reads.
 *
 * <p>User code may leave a scan without reading it to its end, one for each key of a batch. So they
 * are held weakly: one that nobody refers to is closed here. Threads: as the session.
 */
final class OpenScans {
  /** An open scan, as its session knows it. */
  interface Reader {
    /** Keeps what the spill that follows will hide. */
    void beforeSpill();
  }

  /** What is held for a scan until it is closed. */
  static final class Hold extends WeakReference<Reader> {
    /** Null: when the scan was opened, there were none. */
    final Writes writes;

    /** The scan sees the writes with a lower epoch. */
    final int epoch;

    /** Null: the scan reads no slab of it. */
    private CachedFamily cached;

    /** In {@link #open}; -1: it is closed. */
    private int place;

    private Hold(Reader scan, ReferenceQueue<Reader> abandoned, Writes writes) {
      super(scan, abandoned);
      this.writes = writes;
      epoch = writes == null ? 0 : writes.openScan();
    }

    /** Keeps the slabs of a family as they are: none is evicted. */
    void holdSlabs(CachedFamily family) {
      cached = family;
      family.openScans++;
    }

    private void release() {
      place = -1;
      if (writes != null) {
        writes.closeScan();
      }
      if (cached != null) {
        cached.openScans--;
      }
    }
  }

  /** In any order. */
  private final List<Hold> open = new ArrayList<>();

  private final ReferenceQueue<Reader> abandoned = new ReferenceQueue<>();

  /**
   * Opens a scan.
   *
   * @param present the writes of its family; null: there are none
   */
  Hold open(Reader scan, Writes present) {
    closeAbandoned();
    boolean isEmpty = present == null || present.count() == 0;
    Hold hold = new Hold(scan, abandoned, isEmpty ? null : present);
    hold.place = open.size();
    open.add(hold);
    return hold;
  }

  /** Closes a scan. Idempotent. */
  void close(Hold hold) {
    if (hold.place >= 0) {
      Hold moved = open.remove(open.size() - 1);
      if (moved != hold) {
        moved.place = hold.place;
        open.set(hold.place, moved);
      }
      hold.release();
    }
  }

  void closeAbandoned() {
    Reference<? extends Reader> left;
    while ((left = abandoned.poll()) != null) {
      close((Hold) left);
    }
  }

  void beforeSpill() {
    for (Hold hold : open) {
      Reader scan = hold.get();
      if (scan != null) {
        scan.beforeSpill();
      }
    }
  }

  /** Closes all scans. They must not be read any more: the session ends. */
  void end() {
    open.forEach(Hold::release);
    open.clear();
  }
}
