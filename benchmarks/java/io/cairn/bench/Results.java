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

  private final Map<String, Double> numbers = new TreeMap<>();

  void set(String name, double value) {
    numbers.put(name, value);
  }

  void setRate(long rows, long nanos) {
    set("rows", rows);
    set("seconds", nanos / NANOS_PER_SECOND);
    set("rows_per_s", rows * NANOS_PER_SECOND / nanos);
  }

  /** Sets {@code <name>_p50_ms}, {@code _p99_ms} and {@code _count}. */
  void setMillis(String name, long[] nanos) {
    setPercentiles(name, nanos, "ms", NANOS_PER_MILLI);
  }

  /** Sets {@code <name>_p50_us}, {@code _p99_us}, {@code _max_us} and {@code _count}. */
  void setMicros(String name, long[] nanos) {
    setPercentiles(name, nanos, "us", NANOS_PER_MICRO);
  }

  private void setPercentiles(String name, long[] nanos, String unit, double nanosPerUnit) {
    long[] sorted = nanos.clone();
    Arrays.sort(sorted);
    set(name + "_count", sorted.length);
    if (sorted.length > 0) {
      set(name + "_p50_" + unit, at(sorted, 0.50) / nanosPerUnit);
      set(name + "_p99_" + unit, at(sorted, 0.99) / nanosPerUnit);
      set(name + "_max_" + unit, sorted[sorted.length - 1] / nanosPerUnit);
    }
  }

  private static double at(long[] sorted, double share) {
    return sorted[(int) Math.min(sorted.length - 1, Math.round(share * (sorted.length - 1)))];
  }

  void write(Path file) throws IOException {
    StringJoiner json = new StringJoiner(",\n  ", "{\n  ", "\n}\n");
    numbers.forEach((name, value) -> json.add("\"" + name + "\": " + value));
    Files.writeString(file, json.toString());
  }
}
