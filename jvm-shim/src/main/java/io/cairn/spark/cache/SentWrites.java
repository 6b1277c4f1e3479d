package io.cairn.spark.cache;

import io.cairn.spark.protocol.EngineSource;

/**
 * What a session handed to the engine, spills included.
 *
 * @param rows writes of all blocks
 * @param blocks calls of {@link EngineSource#write}
 * @param bytes keys and values
 */
public record SentWrites(long rows, long blocks, long bytes) {}
