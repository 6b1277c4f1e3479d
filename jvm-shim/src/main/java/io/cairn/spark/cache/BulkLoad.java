package io.cairn.spark.tier;

/**
 * Streams the committed state of the stamped version into an emptied base, family by family. Uses
 * only free budget and never evicts.
 */
public final class BulkLoad {
  private final StoreTier tier;
  private final Base base;
  private final boolean owned;
  private boolean full;
  private boolean finished;

  BulkLoad(StoreTier tier, Base base, boolean owned) {
    this.tier = tier;
    this.base = base;
    this.owned = owned;
    for (int i = 0; i < base.end(); i++) {
      if (base.isDefined(i)) {
        BaseFamily family = base.family(i);
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
  public boolean add(int family, Rows rows) {
    if (finished) {
      throw new IllegalStateException("[CAIRN_INTERNAL] a page is added to a finished bulk load");
    }
    BaseFamily to = base.family(family);
    for (int i = 0; i < rows.count && !full; i++) {
      long key = Regions.ARRAY + rows.keyOffset[i];
      int hash = Regions.hash(rows.data, key, rows.keyLength[i]);
      full =
          !base.load(
              to,
              hash,
              rows.data,
              key,
              rows.keyLength[i],
              Regions.ARRAY + rows.valueOffset[i],
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
    tier.endLoad(owned);
    return marked;
  }
}
