package io.cairn.spark.session;

import com.fasterxml.jackson.databind.JsonNode;

/**
 * The version that a session starts from, loaded in cache and engine.
 *
 * @param session id of the session
 * @param answer the engine's answer to the load; a missing node if no load was needed
 * @param isLoadedEmpty whether the content of the version was left out, at Spark's request
 * @param fillsCache whether the session may read all rows into the cache
 * @param workerStartMs how long the start of the worker took, if this load started it
 */
public record LoadedVersion(
    StoreVersion version,
    long session,
    JsonNode answer,
    boolean isLoadedEmpty,
    boolean fillsCache,
    long workerStartMs) {

  /** The same version for a session that reads few keys: it does not fill the cache. */
  public LoadedVersion withoutCaching() {
    return new LoadedVersion(version, session, answer, isLoadedEmpty, false, workerStartMs);
  }
}
