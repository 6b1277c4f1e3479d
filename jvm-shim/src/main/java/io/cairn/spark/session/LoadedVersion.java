package io.cairn.spark.session;

import com.fasterxml.jackson.databind.JsonNode;

/**
 * The version that a session starts from, loaded in cache and engine.
 *
 * @param session id of the session
 * @param answer of the engine's load; a missing node if no load was needed
 * @param isLoadedEmpty whether the content of the version was left out, as Spark asked
 * @param isWorthCaching whether the cache is empty and the whole state fits it
 * @param workerStartMs how long the start of the worker took, if this load started it
 */
public record LoadedVersion(
    StoreVersion version,
    long session,
    JsonNode answer,
    boolean isLoadedEmpty,
    boolean isWorthCaching,
    long workerStartMs) {
  /** The same for a session that reads few keys, for which the cache is not filled. */
  public LoadedVersion withoutCaching() {
    return new LoadedVersion(version, session, answer, isLoadedEmpty, false, workerStartMs);
  }
}
