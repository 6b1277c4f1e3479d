package io.cairn.spark.codec;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;

/** A column family as a version has it. Spec: docs/checkpoint-format.md, "Column family". */
public record FamilyInfo(
    int id,
    String name,
    boolean isMulti,
    boolean isInternal,
    boolean isOrdered,
    String keyType,
    String valueType,
    String keyEncoder) {
  public static FamilyInfo of(JsonNode node) {
    return new FamilyInfo(
        node.get("id").asInt(),
        node.get("name").asText(),
        node.path("multi").asBoolean(),
        node.path("internal").asBoolean(),
        node.path("ordered").asBoolean(),
        node.path("key_type").asText(),
        node.path("value_type").asText(),
        node.path("key_encoder").asText());
  }

  public void addTo(ArrayNode families) {
    families
        .addObject()
        .put("id", id)
        .put("name", name)
        .put("multi", isMulti)
        .put("internal", isInternal)
        .put("ordered", isOrdered)
        .put("key_type", keyType)
        .put("value_type", valueType)
        .put("key_encoder", keyEncoder);
  }
}
