package io.cairn.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.spark.network.util.JavaUtils;

/** One row of the settings' table: how a value of it is spelled, and what range it has. */
record Setting(
    String name,
    String side,
    String type,
    Long min,
    Long max,
    List<String> allowed,
    String defaultText) {
  static Setting of(JsonNode node) {
    List<String> allowed = new ArrayList<>();
    node.path("values").forEach(value -> allowed.add(value.asText()));
    return new Setting(
        node.get("name").asText(),
        node.get("side").asText(),
        node.get("type").asText(),
        node.has("min") ? Long.valueOf(node.get("min").asLong()) : null,
        node.has("max") ? Long.valueOf(node.get("max").asLong()) : null,
        allowed,
        node.get("default").isNull() ? null : node.get("default").asText());
  }

  Object parse(String text) {
    switch (type) {
      case "int":
        return inRange(Long.parseLong(text));
      case "bytes":
        return inRange(JavaUtils.byteStringAsBytes(withoutI(text)));
      case "boolean":
        if (!text.equalsIgnoreCase("true") && !text.equalsIgnoreCase("false")) {
          throw new IllegalArgumentException(text);
        }
        return Boolean.valueOf(text);
      case "enum":
        if (!allowed.contains(text)) {
          throw new IllegalArgumentException(text);
        }
        return text;
      case "string":
        if (text.isEmpty()) {
          throw new IllegalArgumentException(text);
        }
        return text;
      default:
        throw new IllegalStateException("settings.json has the unknown type " + type);
    }
  }

  /** Spark's units are binary and lack only their own names: KiB is its kb. */
  private static String withoutI(String text) {
    return text.toLowerCase(Locale.ROOT).replaceFirst("(?<=[kmgtp])ib$", "b");
  }

  private Long inRange(long value) {
    if (min != null && value < min || max != null && value > max) {
      throw new IllegalArgumentException(Long.toString(value));
    }
    return value;
  }

  String range() {
    String what =
        switch (type) {
          case "int" -> "a whole number";
          case "bytes" -> "a number of bytes, such as 512m or 2g,";
          case "boolean" -> "true or false";
          case "enum" -> "one of " + String.join(", ", allowed);
          default -> "a text that is not empty";
        };
    if (min != null && max != null) {
      return what + " from " + min + " to " + max;
    }
    return min != null ? what + " of at least " + min : what;
  }
}
