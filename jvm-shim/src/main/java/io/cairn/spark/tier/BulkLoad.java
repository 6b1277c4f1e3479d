package io.cairn.spark.tier;

/** Streams the committed state of the stamped version into an emptied base, family by family. */
public final class BulkLoad {
  BulkLoad() {}

  /** Takes a page of committed rows. False: the budget is spent; ask for no further page and finish. Uses only free budget, never evicts. */
  public boolean add(int family, Rows rows) {
    throw new UnsupportedOperationException();
  }

  /** Ends the load. {@code complete}: all rows of all families were offered; then, if all found room, every family is marked complete. */
  public boolean finish(boolean complete) {
    throw new UnsupportedOperationException();
  }
}
