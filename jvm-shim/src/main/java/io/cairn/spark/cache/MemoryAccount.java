package io.cairn.spark.cache;

/** Where slabs, tables and orders get their bytes from. */
interface MemoryAccount {
  /**
   * Takes bytes out of the budget. May evict, also from the structure that asks. False: there are
   * none.
   */
  boolean take(long bytes);

  void give(long bytes);
}
