package io.cairn.spark.cache;

/**
 * What a store cache holds and did since it was made.
 *
 * @param entries present keys in the base
 * @param bytes accounted bytes of base and overlay
 * @param hits reads answered without the engine
 * @param misses reads that asked the engine, in keys
 * @param evictions slabs dropped for room
 * @param spills overlays sent to the engine before commit
 * @param families families known
 * @param completeFamilies of these, those whose keys are all in the base
 */
public record CacheStats(
    long entries,
    long bytes,
    long hits,
    long misses,
    long evictions,
    long spills,
    int families,
    int completeFamilies) {}
