package io.cairn.spark.session;

import com.fasterxml.jackson.databind.JsonNode;
import io.cairn.spark.engine.SessionChannel;

/**
 * The version that a session starts from, loaded in cache and engine.
 *
 * @param session begins the session in the engine
 * @param answer the engine's answer to the load; a missing node if no load was needed
 * @param isLoadedEmpty whether the content of the version was left out, at Spark's request
 * @param workerStartMs how long the start of the worker took, if this load started it
 */
public record LoadedVersion(
    StoreVersion version,
    SessionChannel.Loaded session,
    JsonNode answer,
    boolean isLoadedEmpty,
    long workerStartMs) {
  /** The newest uploaded snapshot that the load has found, or 0. */
  long snapshotVersion() {
    return answer.path("snapshot_version").asLong();
  }
}
