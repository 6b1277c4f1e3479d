package io.cairn.spark;

import io.cairn.spark.tier.TierBudget;
import org.apache.spark.SparkEnv;
import org.apache.spark.memory.MemoryMode;
import org.apache.spark.memory.UnifiedMemoryManager;
import org.apache.spark.memory.UnmanagedMemoryConsumer;
import org.apache.spark.memory.UnmanagedMemoryConsumerId;

/**
 * The tier's heap as Spark's memory manager sees it, so that caching and shuffles make room for it.
 */
final class TierMemory implements UnmanagedMemoryConsumer {
  private final TierBudget budget;
  private final UnmanagedMemoryConsumerId id;

  private TierMemory(TierBudget budget) {
    this.budget = budget;
    this.id = new UnmanagedMemoryConsumerId("Cairn", "tier-" + budget.limitBytes());
  }

  /** Makes a budget for the tiers of this JVM and tells Spark of it. */
  static TierBudget register(long limitBytes) {
    TierBudget budget = new TierBudget(limitBytes);
    if (SparkEnv.get() != null) {
      UnifiedMemoryManager.registerUnmanagedMemoryConsumer(new TierMemory(budget));
    }
    return budget;
  }

  @Override
  public UnmanagedMemoryConsumerId unmanagedMemoryConsumerId() {
    return id;
  }

  @Override
  public MemoryMode memoryMode() {
    return MemoryMode.ON_HEAP;
  }

  @Override
  public long getMemBytesUsed() {
    return budget.accountedBytes();
  }
}
