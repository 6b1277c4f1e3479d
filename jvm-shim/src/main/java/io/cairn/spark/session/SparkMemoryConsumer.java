package io.cairn.spark.session;

import io.cairn.spark.cache.memory.MemoryPool;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkEnv;
import org.apache.spark.memory.MemoryMode;
import org.apache.spark.memory.UnifiedMemoryManager;
import org.apache.spark.memory.UnmanagedMemoryConsumer;
import org.apache.spark.memory.UnmanagedMemoryConsumerId;

/**
 * Reports the heap of a memory pool to Spark's memory manager, which then gives others less. The
 * caches of this JVM that have the same bound share a pool.
 */
final class SparkMemoryConsumer implements UnmanagedMemoryConsumer {
  private static final ConcurrentHashMap<Long, MemoryPool> POOLS = new ConcurrentHashMap<>();

  private final MemoryPool pool;
  private final UnmanagedMemoryConsumerId id;

  private SparkMemoryConsumer(MemoryPool pool) {
    this.pool = pool;
    this.id = new UnmanagedMemoryConsumerId("Cairn", "cache-" + pool.limitBytes());
  }

  /** The pool with a bound; its first caller creates it and registers it with Spark. */
  static MemoryPool pool(long limitBytes) {
    return POOLS.computeIfAbsent(limitBytes, SparkMemoryConsumer::register);
  }

  private static MemoryPool register(long limitBytes) {
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
