package io.cairn.spark.session;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.codahale.metrics.MetricRegistry;
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

    try (RunningLoads.Load first = RunningLoads.begin()) {
      Thread.sleep(30);
      RunningLoads.Load second = RunningLoads.begin();
      assertEquals(2, value("runningLoads"));
      assertTrue(value("longestLoadMs") >= 30, "of " + first);
      second.close();
      second.close();
      assertEquals(1, value("runningLoads"));
    }

    assertEquals(0, value("runningLoads"));
    assertEquals(0, value("longestLoadMs"));
  }
}
