/**
 * The state cache: the rows that a store keeps in the JVM, so that a read or write of a row needs
 * no round trip to the engine.
 *
 * <pre>
 * get      WriteBuffer, else CommittedCache, else Answers, else KeySource asks the engine; a committed answer is cached
 * ahead    Prefetcher requests keys and ranges, AscendingReads pages, IndexedReads the keys that a scan names
 * scan     UnorderedScan or OrderedScan: writes over cached rows if all keys are cached, else over pages from the engine
 * write    WriteBuffer, one entry per key; without memory all writes are spilled: sent by BlockWriter and dropped
 * commit   CacheSession sends the writes that were not spilled; when the version is durable, it folds them into CommittedCache
 * memory   is reserved before an entry is added; Eviction frees it, in this store or in one that is not in use
 * </pre>
 *
 * <p>Each class uses only those named after it: {@link io.cairn.spark.cache.StateCache} (one per
 * provider instance), {@link io.cairn.spark.cache.CacheSession}, the scans, {@code WriteBuffer},
 * {@code CommittedCache}, {@code KeySource}, {@code RefillOnDemand}, {@code Answers}, {@code
 * Eviction}, {@code CachedFamilies}, {@code CachedFamily}, {@link io.cairn.spark.cache.memory}. The
 * cache uses the engine only through {@link io.cairn.spark.protocol.EngineSource}.
 */
package io.cairn.spark.cache;
