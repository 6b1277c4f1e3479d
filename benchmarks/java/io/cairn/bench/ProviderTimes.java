package io.cairn.bench;

import java.util.Map;
import java.util.TreeMap;
import java.util.function.BiConsumer;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;

/**
 * Times that the provider itself reports of its batches: Cairn's custom metrics in milliseconds,
 * such as {@code cairnCommitMs}, and its counts of prefetched keys. Their mean per batch becomes a
 * number with the metric's name.
 */
final class ProviderTimes {
  private final Map<String, Long> sums = new TreeMap<>();
  private int batchCount;

  void clear() {
    sums.clear();
    batchCount = 0;
  }

  /** Adds the metrics of one batch of one store. */
  void add(StateStoreMetrics metrics) {
    batchCount++;
    metrics
        .customMetrics()
        .foreach(
            pair -> {
              add(pair._1().name(), (Long) pair._2());
              return null;
            });
  }

  /** Adds the metrics of one batch of a query, summed over its partitions. */
  void add(Map<String, Long> customMetrics) {
    batchCount++;
    customMetrics.forEach((BiConsumer<String, Long>) this::add);
  }

  /** Adds all batches of another store. */
  void add(ProviderTimes other) {
    batchCount += other.batchCount;
    other.sums.forEach((name, sum) -> sums.merge(name, sum, Long::sum));
  }

  private void add(String name, long value) {
    boolean isTime = name.endsWith("Ms") && !name.equals("cairnWorkerStartMs");
    if (name.startsWith("cairn") && isTime || name.startsWith("cairnPrefetch")) {
      sums.merge(name, value, Long::sum);
    }
  }

  void writeTo(Results results) {
    sums.forEach((name, sum) -> results.set(name, (double) sum / batchCount));
  }
}
