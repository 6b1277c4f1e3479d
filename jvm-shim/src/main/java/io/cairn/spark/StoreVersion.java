package io.cairn.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.codec.FamilyInfo;
import io.cairn.spark.engine.EngineInstance;
import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;

/**
 * What is known of one committed version: name, families, counts. Immutable.
 *
 * @param checkpointId null at version 0
 * @param families by name; without {@code default} only where nothing was ever committed
 * @param maxFamilyId highest id ever used: ids are never used again
 * @param counts keys by family id
 */
record StoreVersion(
    long version,
    String checkpointId,
    Map<String, FamilyInfo> families,
    int maxFamilyId,
    Map<Integer, Long> counts) {
  static StoreVersion of(JsonNode loaded) {
    Map<String, FamilyInfo> families = new TreeMap<>();
    for (JsonNode node : loaded.path("column_families")) {
      FamilyInfo info = FamilyInfo.of(node);
      families.put(info.name(), info);
    }
    JsonNode id = loaded.path("checkpoint_id");
    return new StoreVersion(
        loaded.path("version").asLong(),
        id.isNull() || id.isMissingNode() ? null : id.asText(),
        Collections.unmodifiableMap(families),
        loaded.path("max_cf_id").asInt(),
        counts(loaded));
  }

  /** The version that a commit's answer makes of this one and the session's families. */
  StoreVersion next(
      JsonNode committed, Map<String, FamilyInfo> committedFamilies, int committedMaxFamilyId) {
    return new StoreVersion(
        version + 1,
        committed.get("checkpoint_id").asText(),
        Collections.unmodifiableMap(new TreeMap<>(committedFamilies)),
        committedMaxFamilyId,
        counts(committed));
  }

  private static Map<Integer, Long> counts(JsonNode answer) {
    Map<Integer, Long> counts = new TreeMap<>();
    answer
        .path("counts")
        .properties()
        .forEach(entry -> counts.put(Integer.valueOf(entry.getKey()), entry.getValue().asLong()));
    return Collections.unmodifiableMap(counts);
  }

  /** Keys of the families that Spark counts: all but the internal ones. */
  long externalKeys() {
    return keys(false);
  }

  long internalKeys() {
    return keys(true);
  }

  private long keys(boolean internal) {
    long keys = 0;
    for (FamilyInfo family : families.values()) {
      if (family.isInternal() == internal) {
        keys += Math.max(0, counts.getOrDefault(family.id(), 0L));
      }
    }
    return keys;
  }

  static void addFamilies(ObjectNode arguments, Map<String, FamilyInfo> families) {
    ArrayNode array = arguments.putArray("column_families");
    for (FamilyInfo family : families.values()) {
      family.addTo(array);
    }
  }

  /** An empty version, as every store begins. */
  static StoreVersion empty(long version) {
    return of(EngineInstance.object().put("version", version));
  }
}
