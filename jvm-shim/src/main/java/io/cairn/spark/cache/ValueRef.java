package io.cairn.spark.cache;

/**
 * A value's bytes, as a region for {@code Platform}.
 *
 * <p>Filled by {@link CacheSession#get}; points into a slab of the cache or into a copy of an
 * engine reply. Valid until the next write, commit or abort of the session that filled it; later
 * reads leave it alone.
 */
public final class ValueRef {
  public Object base;
  public long offset;
  public int length;

  void set(Object newBase, long newOffset, int newLength) {
    base = newBase;
    offset = newOffset;
    length = newLength;
  }
}
