package io.cairn.spark.session;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.codahale.metrics.MetricRegistry;
import io.cairn.spark.Waits;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** The gauges of loads; that Spark's metrics system has them is shown by an integration test. */
class RunningLoadsTest {
  private final MetricRegistry gauges = RunningLoads.gauges();

  private long value(String name) {
    return ((Number) gauges.getGauges().get(name).getValue()).longValue();
  }

  /** A load that has ended, in whatever way, must not look like one that hangs. */
  @Test
  void aLoadCountsFromItsBeginToItsEnd() throws InterruptedException {
    assertEquals(0, value("runningLoads"));
    assertEquals(0, value("longestLoadMs"));

    long beforeNs = System.nanoTime();
    try (RunningLoads.Load first = RunningLoads.begin()) {
      Waits.until("the time of " + first, () -> value("longestLoadMs") >= 5);
      RunningLoads.Load second = RunningLoads.begin();
      assertEquals(2, value("runningLoads"));
      long longestMs = value("longestLoadMs");
      long passedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - beforeNs);
      assertTrue(5 <= longestMs && longestMs <= passedMs, longestMs + " of " + passedMs);
      second.close();
      second.close();
      assertEquals(1, value("runningLoads"));
    }

    assertEquals(0, value("runningLoads"));
    assertEquals(0, value("longestLoadMs"));
  }
}
