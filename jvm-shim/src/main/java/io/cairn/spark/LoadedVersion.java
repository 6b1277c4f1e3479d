package io.cairn.spark;

import com.fasterxml.jackson.databind.JsonNode;

/**
 * A store standing at a version for a session.
 *
 * @param answer of the engine's load; null if none was needed
 * @param isLoadedEmpty whether what the version holds was left out, as the caller asked
 * @param isWorthLoading whether the cache is empty and the whole state would fit
 * @param workerStartMs how long the worker took to start, if this opening started it
 */
record LoadedVersion(
    StoreVersion base,
    int number,
    JsonNode answer,
    boolean isLoadedEmpty,
    boolean isWorthLoading,
    long workerStartMs) {
  /** The same for a session that reads little: the cache is not filled for it. */
  LoadedVersion unfilled() {
    return new LoadedVersion(base, number, answer, isLoadedEmpty, false, workerStartMs);
  }
}
