package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.RowPage;

/**
 * Streams the committed state of the stamped version into an emptied base, family by family. Uses
 * only free budget and never evicts.
 */
public final class BulkLoad {
  private final StateCache cache;
  private final CommittedCache base;
  private final boolean owned;
  private boolean full;
  private boolean finished;

  BulkLoad(StateCache cache, CommittedCache base, boolean owned) {
    this.cache = cache;
    this.base = base;
    this.owned = owned;
    for (int i = 0; i < base.end(); i++) {
      if (base.isDefined(i)) {
        CachedFamily family = base.family(i);
        family.clear();
        if (family.ordered) {
          family.keepOrder();
        }
      }
    }
  }

  /**
   * Takes a page of committed rows. False: the budget is spent; ask for no further page and finish.
   */
  public boolean add(int family, RowPage rows) {
    if (finished) {
      throw new IllegalStateException("[CAIRN_INTERNAL] a page is added to a finished bulk load");
    }
    CachedFamily to = base.family(family);
    for (int i = 0; i < rows.count && !full; i++) {
      long key = Bytes.ARRAY + rows.keyOffset[i];
      int hash = Bytes.hash(rows.data, key, rows.keyLength[i]);
      full =
          !base.load(
              to,
              hash,
              rows.data,
              key,
              rows.keyLength[i],
              Bytes.ARRAY + rows.valueOffset[i],
              rows.valueLength[i]);
    }
    return !full;
  }

  /**
   * Ends the load; required however it went. {@code complete}: all rows of all families were
   * offered; then, if all found room, every family is marked complete. Else what was loaded stays
   * as a cache.
   */
  public boolean finish(boolean complete) {
    if (finished) {
      return false;
    }
    finished = true;
    boolean marked = complete && !full;
    for (int i = 0; i < base.end(); i++) {
      if (base.isDefined(i)) {
        if (marked) {
          base.family(i).markComplete();
        } else {
          base.family(i).dropOrder();
        }
      }
    }
    cache.endLoad(owned);
    return marked;
  }
}
