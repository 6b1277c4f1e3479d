package io.cairn.spark.session;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import java.lang.ref.WeakReference;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkEnv;
import org.apache.spark.metrics.source.Source;

/**
 * The loads of this JVM that run now, as gauges of Spark's metrics system: the progress of a query
 * has nothing of a batch before its end, and a load may take hours. Thread-safe.
 */
final class RunningLoads {
  /** Of the source; the gauges' names are in docs/operations.md. */
  static final String NAME = "cairn";

  private static final Set<Load> RUNNING = ConcurrentHashMap.newKeySet();

  /** The environment that has the gauges: a JVM may start one application after the other. */
  private static WeakReference<SparkEnv> registered = new WeakReference<>(null);

  private RunningLoads() {}

  /** One load, until it is closed. */
  static final class Load implements AutoCloseable {
    private final long startedNs = System.nanoTime();

    @Override
    public void close() {
      RUNNING.remove(this);
    }
  }

  /** Notes the begin of a load. */
  static Load begin() {
    register(SparkEnv.get());
    Load load = new Load();
    RUNNING.add(load);
    return load;
  }

  /** Returns the gauges. */
  static MetricRegistry gauges() {
    MetricRegistry gauges = new MetricRegistry();
    gauges.register("runningLoads", (Gauge<Integer>) RUNNING::size);
    gauges.register("longestLoadMs", (Gauge<Long>) RunningLoads::longestMs);
    return gauges;
  }

  private static long longestMs() {
    long now = System.nanoTime();
    return RUNNING.stream()
        .mapToLong(load -> TimeUnit.NANOSECONDS.toMillis(now - load.startedNs))
        .max()
        .orElse(0);
  }

  private static synchronized void register(SparkEnv present) {
    if (present == null || registered.get() == present) {
      return;
    }
    registered = new WeakReference<>(present);
    MetricRegistry gauges = gauges();
    present
        .metricsSystem()
        .registerSource(
            new Source() {
              @Override
              public String sourceName() {
                return NAME;
              }

              @Override
              public MetricRegistry metricRegistry() {
                return gauges;
              }
            });
  }
}
