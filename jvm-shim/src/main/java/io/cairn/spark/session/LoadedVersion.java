package io.cairn.spark.session;

import com.fasterxml.jackson.databind.JsonNode;

/**
 * The version that a session starts from, loaded in cache and engine.
 *
 * @param session id of the session
 * @param answer the engine's answer to the load; a missing node if no load was needed
 * @param isLoadedEmpty whether the content of the version was left out, at Spark's request
 * @param workerStartMs how long the start of the worker took, if this load started it
 */
public record LoadedVersion(
    StoreVersion version,
    long session,
    JsonNode answer,
    boolean isLoadedEmpty,
    long workerStartMs) {}
