package io.cairn.spark.settings;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Spark's settings of state stores: those that Cairn honours, and those without an effect on it.
 *
 * <p>A setting without an effect is named in a warning, unless its value asks for what Cairn does
 * anyway. Names are compared as Spark's RocksDB provider does: without regard to case.
 */
final class SparkSettings {
  private static final Logger LOG = LoggerFactory.getLogger(SparkSettings.class);

  /** One warning per text and JVM: each task of each batch may open stores. */
  private static final Set<String> WARNED = ConcurrentHashMap.newKeySet();

  /** A setting without an effect: the values that need no warning, and what holds instead. */
  private record Unused(List<String> quiet, String instead) {}

  private final String prefix;
  private final Set<String> effective = new HashSet<>();
  private final Map<String, Unused> unused = new HashMap<>();
  private final List<String> outsidePrefix = new ArrayList<>();

  SparkSettings(JsonNode table) {
    prefix = table.get("prefix").asText();
    table.get("honoured").forEach(row -> effective.add(key(row.get("name").asText())));
    table.get("of_spark").forEach(name -> effective.add(key(name.asText())));
    for (JsonNode row : table.get("unused")) {
      List<String> quiet = new ArrayList<>();
      row.get("quiet").forEach(value -> quiet.add(value.asText()));
      String name = row.get("name").asText();
      unused.put(key(name), new Unused(quiet, row.get("instead").asText().replace("`", "")));
      if (name.startsWith("spark.")) {
        outsidePrefix.add(name);
      }
    }
  }

  private String key(String name) {
    return (name.startsWith("spark.") ? name : prefix + name).toLowerCase(Locale.ROOT);
  }

  /** Whether the table has a setting of Spark's, by its full name. */
  boolean knows(String name) {
    return effective.contains(key(name)) || unused.containsKey(key(name));
  }

  /** Full names of settings without an effect that are not under the prefix of state stores. */
  List<String> outsidePrefix() {
    return outsidePrefix;
  }

  /**
   * Describes the settings that have no effect, in the order of their names; empty if there are
   * none.
   *
   * @param confs the settings that were set, by full name; other settings are not looked at
   */
  List<String> withoutEffect(Map<String, String> confs) {
    List<String> named = new ArrayList<>();
    new TreeMap<>(confs)
        .forEach(
            (name, value) -> {
              Unused known = unused.get(key(name));
              if (known != null && !known.quiet().contains(value.trim().toLowerCase(Locale.ROOT))) {
                named.add(name + "=" + value + " (" + known.instead() + ")");
              } else if (!knows(name) && key(name).startsWith(prefix.toLowerCase(Locale.ROOT))) {
                named.add(name + "=" + value + " (not a setting that Cairn knows)");
              }
            });
    return named;
  }

  /** Names the settings without an effect in one line of the log. */
  void warn(Map<String, String> confs) {
    String named = String.join("; ", withoutEffect(confs));
    if (!named.isEmpty() && WARNED.add(named)) {
      LOG.warn("Settings without an effect on Cairn: {}", named);
    }
  }
}
