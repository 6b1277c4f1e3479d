package io.cairn.spark;

import io.cairn.spark.cache.memory.MemoryPool;
import org.apache.spark.SparkEnv;
import org.apache.spark.memory.MemoryMode;
import org.apache.spark.memory.UnifiedMemoryManager;
import org.apache.spark.memory.UnmanagedMemoryConsumer;
import org.apache.spark.memory.UnmanagedMemoryConsumerId;

/**
 * The cache's heap as Spark's memory manager sees it, so that caching and shuffles make room for
 * it.
 */
final class SparkMemoryConsumer implements UnmanagedMemoryConsumer {
  private final MemoryPool budget;
  private final UnmanagedMemoryConsumerId id;

  private SparkMemoryConsumer(MemoryPool budget) {
    this.budget = budget;
    this.id = new UnmanagedMemoryConsumerId("Cairn", "cache-" + budget.limitBytes());
  }

  /** Makes a budget for the caches of this JVM and tells Spark of it. */
  static MemoryPool register(long limitBytes) {
    MemoryPool budget = new MemoryPool(limitBytes);
    if (SparkEnv.get() != null) {
      UnifiedMemoryManager.registerUnmanagedMemoryConsumer(new SparkMemoryConsumer(budget));
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
