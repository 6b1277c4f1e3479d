package io.cairn.spark.tier;

/**
 * The bound on the bytes of all store tiers of a process. Thread-safe.
 */
public final class TierBudget {
  private final long limitBytes;

  public TierBudget(long limitBytes) {
    this.limitBytes = limitBytes;
  }

  public long limitBytes() {
    return limitBytes;
  }

  public long accountedBytes() {
    throw new UnsupportedOperationException();
  }

  public long peakBytes() {
    throw new UnsupportedOperationException();
  }

  boolean tryReserve(long bytes) {
    throw new UnsupportedOperationException();
  }

  void release(long bytes) {
    throw new UnsupportedOperationException();
  }
}
