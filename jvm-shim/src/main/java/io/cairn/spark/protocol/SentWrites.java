package io.cairn.spark.protocol;

/** What a session has sent to the engine, spills included: its rows, and the blocks with them. */
public record SentWrites(long rows, long blocks) {}
