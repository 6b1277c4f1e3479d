package io.cairn.spark.tier;

/**
 * What a session handed to the engine, spills included.
 *
 * @param rows writes of all blocks
 * @param blocks calls of {@link EngineSource#write}
 * @param bytes keys and values
 */
public record Sent(long rows, long blocks, long bytes) {}
