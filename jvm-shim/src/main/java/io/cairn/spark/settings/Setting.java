package io.cairn.spark.settings;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.spark.network.util.JavaUtils;

/** One row of {@code settings.json}: the name, type, range and default of a setting. */
record Setting(JsonNode row) {
  String name() {
    return row.get("name").asText();
  }

  boolean isOfEngine() {
    return row.get("side").asText().equals("engine");
  }

  /** The default as a user would write it, or null. */
  String defaultText() {
    return row.get("default").isNull() ? null : row.get("default").asText();
  }

  private List<String> values() {
    List<String> values = new ArrayList<>();
    row.path("values").forEach(value -> values.add(value.asText()));
    return values;
  }

  private String type() {
    return row.get("type").asText();
  }

  /** Parses a value; throws IllegalArgumentException if the setting does not allow it. */
  Object parse(String text) {
    switch (type()) {
      case "int":
        return inRange(Long.parseLong(text));
      case "bytes":
        return inRange(JavaUtils.byteStringAsBytes(withoutI(text)));
      case "boolean":
        require(text.equalsIgnoreCase("true") || text.equalsIgnoreCase("false"), text);
        return Boolean.valueOf(text);
      case "enum":
        require(values().contains(text), text);
        return text;
      case "string":
        require(!text.isEmpty(), text);
        return text;
      default:
        throw new IllegalStateException("settings.json has the unknown type " + type());
    }
  }

  private static void require(boolean isValid, String text) {
    if (!isValid) {
      throw new IllegalArgumentException(text);
    }
  }

  /** Spark's units are binary but do not have the binary names: its kb means KiB. */
  private static String withoutI(String text) {
    return text.toLowerCase(Locale.ROOT).replaceFirst("(?<=[kmgtp])ib$", "b");
  }

  private Long inRange(long value) {
    boolean isAbove = !row.has("min") || value >= row.get("min").asLong();
    boolean isBelow = !row.has("max") || value <= row.get("max").asLong();
    require(isAbove && isBelow, Long.toString(value));
    return value;
  }

  /** Describes the values that are allowed. */
  String range() {
    String what =
        switch (type()) {
          case "int" -> "a whole number";
          case "bytes" -> "a number of bytes, such as 512m or 2g,";
          case "boolean" -> "true or false";
          case "enum" -> "one of " + String.join(", ", values());
          default -> "a non-empty text";
        };
    if (row.has("min") && row.has("max")) {
      return what + " from " + row.get("min") + " to " + row.get("max");
    }
    return row.has("min") ? what + " of at least " + row.get("min") : what;
  }
}
