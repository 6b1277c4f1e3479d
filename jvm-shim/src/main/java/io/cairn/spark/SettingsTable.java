package io.cairn.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/**
 * Every setting of Cairn with type, range and default: {@code settings.json}, which the engine and
 * the documents read too.
 *
 * <p>Checks what a user wrote, and reports all faults at once. The one place that knows how a value
 * is spelled.
 */
final class SettingsTable {
  private static final SettingsTable INSTANCE = read();

  private final String prefix;
  private final Map<String, Setting> settings;

  private SettingsTable(String prefix, Map<String, Setting> settings) {
    this.prefix = prefix;
    this.settings = settings;
  }

  static SettingsTable get() {
    return INSTANCE;
  }

  String prefix() {
    return prefix;
  }

  /**
   * Checks settings and fills in defaults.
   *
   * @param confs all that the user set under Spark's state store prefix, by full name
   * @param faults gets one sentence a fault; a faulty setting has no value in the answer
   * @return values by short name: Long, Boolean or String; absent where neither set nor defaulted
   */
  Map<String, Object> values(Map<String, String> confs, List<String> faults) {
    Map<String, Object> values = new TreeMap<>();
    for (Setting setting : settings.values()) {
      if (setting.defaultText() != null) {
        values.put(setting.name(), setting.parse(setting.defaultText()));
      }
    }
    for (Map.Entry<String, String> entry : confs.entrySet()) {
      if (entry.getKey().startsWith(prefix)) {
        String name = entry.getKey().substring(prefix.length());
        Setting setting = settings.get(name);
        if (setting == null) {
          faults.add(
              entry.getKey() + " is unknown; the nearest known name is " + prefix + nearest(name));
          continue;
        }
        try {
          values.put(name, setting.parse(entry.getValue().trim()));
        } catch (IllegalArgumentException e) {
          faults.add(
              entry.getKey() + " is '" + entry.getValue() + "' but must be " + setting.range());
        }
      }
    }
    return values;
  }

  /** Values of the engine's side among those given, as they go over the wire. */
  Map<String, Object> engineValues(Map<String, Object> values) {
    Map<String, Object> engine = new TreeMap<>();
    values.forEach(
        (name, value) -> {
          if (settings.get(name).side().equals("engine")) {
            engine.put(name, value);
          }
        });
    return engine;
  }

  private String nearest(String name) {
    String best = null;
    int bestDistance = Integer.MAX_VALUE;
    for (String known : settings.keySet()) {
      int distance = distance(name.toLowerCase(Locale.ROOT), known.toLowerCase(Locale.ROOT));
      if (distance < bestDistance) {
        bestDistance = distance;
        best = known;
      }
    }
    return best;
  }

  /** Levenshtein's distance. */
  private static int distance(String one, String other) {
    int[] above = new int[other.length() + 1];
    for (int column = 0; column <= other.length(); column++) {
      above[column] = column;
    }
    for (int row = 1; row <= one.length(); row++) {
      int[] line = new int[other.length() + 1];
      line[0] = row;
      for (int column = 1; column <= other.length(); column++) {
        int change = above[column - 1] + (one.charAt(row - 1) == other.charAt(column - 1) ? 0 : 1);
        line[column] = Math.min(change, Math.min(above[column], line[column - 1]) + 1);
      }
      above = line;
    }
    return above[other.length()];
  }

  private static SettingsTable read() {
    try (InputStream stream = SettingsTable.class.getResourceAsStream("settings.json")) {
      if (stream == null) {
        throw new IllegalStateException(
            "the jar of Cairn lacks io/cairn/spark/settings.json: build it with make shim");
      }
      JsonNode table = new ObjectMapper().readTree(stream);
      Map<String, Setting> settings = new LinkedHashMap<>();
      for (JsonNode node : table.get("settings")) {
        Setting setting = Setting.of(node);
        settings.put(setting.name(), setting);
      }
      return new SettingsTable(table.get("prefix").asText(), settings);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
