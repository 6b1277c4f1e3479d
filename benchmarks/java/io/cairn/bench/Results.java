package io.cairn.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;

/** Numbers of one run by name, written as one flat JSON object. Names end with the unit. */
final class Results {
  private static final double NANOS_PER_SECOND = 1e9;
  private static final double NANOS_PER_MILLI = 1e6;
  private static final double NANOS_PER_MICRO = 1e3;
  private static final int LEAST_FOR_P99 = 100;

  private final Map<String, Double> numbers = new TreeMap<>();

  void set(String name, double value) {
    numbers.put(name, value);
  }

  void setRate(long rows, long nanos) {
    set("rows", rows);
    set("seconds", nanos / NANOS_PER_SECOND);
    set("rows_per_s", rows * NANOS_PER_SECOND / nanos);
  }

  /**
   * Sets {@code <name>_p50_ms}, {@code _max_ms}, {@code _count}, {@code _p99_ms} if there are 100.
   */
  void setMillis(String name, long[] nanos) {
    setPercentiles(name, nanos, "ms", NANOS_PER_MILLI);
  }

  /** The same in microseconds: names end with {@code _us}. */
  void setMicros(String name, long[] nanos) {
    setPercentiles(name, nanos, "us", NANOS_PER_MICRO);
  }

  private void setPercentiles(String name, long[] nanos, String unit, double nanosPerUnit) {
    long[] sorted = nanos.clone();
    Arrays.sort(sorted);
    set(name + "_count", sorted.length);
    if (sorted.length > 0) {
      set(name + "_p50_" + unit, at(sorted, 0.50) / nanosPerUnit);
      set(name + "_max_" + unit, sorted[sorted.length - 1] / nanosPerUnit);
    }
    if (sorted.length >= LEAST_FOR_P99) {
      set(name + "_p99_" + unit, at(sorted, 0.99) / nanosPerUnit);
    }
  }

  /** The value below which that share of the values is, between its two neighbours. */
  private static double at(long[] sorted, double share) {
    double place = share * (sorted.length - 1);
    int below = (int) place;
    int above = Math.min(below + 1, sorted.length - 1);
    return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
  }

  void write(Path file) throws IOException {
    StringJoiner json = new StringJoiner(",\n  ", "{\n  ", "\n}\n");
    numbers.forEach((name, value) -> json.add("\"" + name + "\": " + value));
    Files.writeString(file, json.toString());
  }
}
