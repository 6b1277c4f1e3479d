package io.cairn.spark.session;

import io.cairn.spark.cache.memory.MemoryPool;
import org.apache.spark.SparkEnv;
import org.apache.spark.memory.MemoryMode;
import org.apache.spark.memory.UnifiedMemoryManager;
import org.apache.spark.memory.UnmanagedMemoryConsumer;
import org.apache.spark.memory.UnmanagedMemoryConsumerId;

/** Reports the heap of the cache to Spark's memory manager, which then gives others less. */
final class SparkMemoryConsumer implements UnmanagedMemoryConsumer {
  private final MemoryPool pool;
  private final UnmanagedMemoryConsumerId id;

  private SparkMemoryConsumer(MemoryPool pool) {
    this.pool = pool;
    this.id = new UnmanagedMemoryConsumerId("Cairn", "cache-" + pool.limitBytes());
  }

  /** Creates a pool for the caches of this JVM and registers it with Spark. */
  static MemoryPool register(long limitBytes) {
    MemoryPool pool = new MemoryPool(limitBytes);
    if (SparkEnv.get() != null) {
      UnifiedMemoryManager.registerUnmanagedMemoryConsumer(new SparkMemoryConsumer(pool));
    }
    return pool;
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
    return pool.accountedBytes();
  }
}
