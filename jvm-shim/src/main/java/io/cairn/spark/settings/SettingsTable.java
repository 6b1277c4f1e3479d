package io.cairn.spark.settings;

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
 * Every setting of Cairn: {@code settings.json}, which the engine and the documents read too.
 *
 * <p>Checks the settings of a user and reports all faults at once.
 */
public final class SettingsTable {
  private static final String RESOURCE = "/io/cairn/spark/settings.json";
  private static final SettingsTable INSTANCE = read();

  private final String prefix;
  private final Map<String, Setting> settings = new LinkedHashMap<>();

  private final SparkSettings ofSpark;

  private SettingsTable(JsonNode table) {
    prefix = table.get("prefix").asText();
    ofSpark = new SparkSettings(table.get("spark"));
    for (JsonNode row : table.get("settings")) {
      Setting setting = new Setting(row);
      settings.put(setting.name(), setting);
    }
  }

  public static SettingsTable get() {
    return INSTANCE;
  }

  public String prefix() {
    return prefix;
  }

  /** Spark's settings of state stores. */
  SparkSettings ofSpark() {
    return ofSpark;
  }

  /**
   * Returns one setting for the planner, which runs before a store checks them all.
   *
   * @param text its value, or null if it is not set
   * @throws IllegalArgumentException if the setting does not allow the value
   */
  public Object value(String name, String text) {
    Setting setting = settings.get(name);
    return setting.parse(text == null ? setting.defaultText() : text.trim());
  }

  /**
   * Checks settings and fills in defaults.
   *
   * @param confs all settings under Spark's state store prefix, by full name
   * @param faults receives one sentence per fault; a faulty setting has no value in the result
   * @return values by short name: Long, Boolean or String; absent if it is neither set nor has a
   *     default
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

  /** The values that the engine reads. */
  Map<String, Object> engineValues(Map<String, Object> values) {
    Map<String, Object> engine = new TreeMap<>();
    values.forEach(
        (name, value) -> {
          if (settings.get(name).isOfEngine()) {
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

  /** Levenshtein distance. */
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
    try (InputStream stream = SettingsTable.class.getResourceAsStream(RESOURCE)) {
      if (stream == null) {
        throw new IllegalStateException("the jar of Cairn lacks " + RESOURCE + ": run make shim");
      }
      return new SettingsTable(new ObjectMapper().readTree(stream));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
