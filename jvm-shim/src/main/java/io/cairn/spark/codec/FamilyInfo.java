package io.cairn.spark.codec;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;

/** A column family of one version. Spec: docs/checkpoint-format.md, "Column family". */
public record FamilyInfo(
    int id, String name, boolean isMulti, boolean isInternal, boolean isOrdered, Types types) {
  /**
   * The types of keys and values as text, and the layout of keys, after what differs from rows in
   * Spark's UnsafeRow encoding without checksums: {@code avro:rowChecksum:NoPrefix}.
   */
  public record Types(String key, String value, String keyEncoder) {
    /** How rows become bytes, apart from the layout of keys: {@code avro:rowChecksum:}. */
    public String encoding() {
      return keyEncoder.substring(0, keyEncoder.lastIndexOf(':') + 1);
    }
  }

  public static FamilyInfo of(JsonNode node) {
    return new FamilyInfo(
        node.get("id").asInt(),
        node.get("name").asText(),
        node.path("multi").asBoolean(),
        node.path("internal").asBoolean(),
        node.path("ordered").asBoolean(),
        new Types(
            node.path("key_type").asText(),
            node.path("value_type").asText(),
            node.path("key_encoder").asText()));
  }

  public void addTo(ArrayNode families) {
    families
        .addObject()
        .put("id", id)
        .put("name", name)
        .put("multi", isMulti)
        .put("internal", isInternal)
        .put("ordered", isOrdered)
        .put("key_type", types.key)
        .put("value_type", types.value)
        .put("key_encoder", types.keyEncoder);
  }
}
