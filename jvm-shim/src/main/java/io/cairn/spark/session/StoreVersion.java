package io.cairn.spark.session;

import com.fasterxml.jackson.databind.JsonNode;
import io.cairn.spark.codec.FamilyInfo;
import io.cairn.spark.protocol.CommitReply;
import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;

/**
 * One committed version: its name, families and counts. Immutable.
 *
 * @param checkpointId null at version 0
 * @param families by name; {@code default} is missing only if nothing was ever committed
 * @param maxFamilyId highest id ever used; no id is used again
 * @param counts keys by family id
 */
public record StoreVersion(
    long version,
    String checkpointId,
    Map<String, FamilyInfo> families,
    int maxFamilyId,
    Map<Integer, Long> counts) {
  /** Reads the engine's answer to a load. */
  static StoreVersion of(JsonNode loaded) {
    Map<String, FamilyInfo> families = new TreeMap<>();
    for (JsonNode node : loaded.path("column_families")) {
      FamilyInfo info = FamilyInfo.of(node);
      families.put(info.name(), info);
    }
    return new StoreVersion(
        loaded.path("version").asLong(),
        loaded.hasNonNull("checkpoint_id") ? loaded.get("checkpoint_id").asText() : null,
        Collections.unmodifiableMap(families),
        loaded.path("max_cf_id").asInt(),
        counts(loaded));
  }

  /** The next version, which a commit has created, with the families of the session. */
  StoreVersion next(
      CommitReply committed, Map<String, FamilyInfo> committedFamilies, int committedMaxFamilyId) {
    return new StoreVersion(
        version + 1,
        committed.checkpointId(),
        Collections.unmodifiableMap(new TreeMap<>(committedFamilies)),
        committedMaxFamilyId,
        committed.counts());
  }

  private static Map<Integer, Long> counts(JsonNode answer) {
    Map<Integer, Long> counts = new TreeMap<>();
    answer
        .path("counts")
        .properties()
        .forEach(entry -> counts.put(Integer.valueOf(entry.getKey()), entry.getValue().asLong()));
    return Collections.unmodifiableMap(counts);
  }

  /** Keys of internal families, or of all others, which Spark counts. */
  public long keys(boolean isInternal) {
    long keys = 0;
    for (FamilyInfo family : families.values()) {
      if (family.isInternal() == isInternal) {
        keys += Math.max(0, counts.getOrDefault(family.id(), 0L));
      }
    }
    return keys;
  }

  /** Internal families, or all others. */
  public long familyCount(boolean isInternal) {
    return families.values().stream().filter(one -> one.isInternal() == isInternal).count();
  }

  /** Whether the number of keys is known, of all families. */
  boolean isCounted() {
    for (FamilyInfo family : families.values()) {
      if (counts.getOrDefault(family.id(), -1L) < 0) {
        return false;
      }
    }
    return true;
  }
}
