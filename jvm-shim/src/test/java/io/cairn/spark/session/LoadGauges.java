package io.cairn.spark.session;

/** The gauges of loads, for tests of other packages. */
public final class LoadGauges {
  private LoadGauges() {}

  /** The number of loads that run in this JVM. */
  public static int runningLoads() {
    return (int) RunningLoads.gauges().getGauges().get("runningLoads").getValue();
  }
}
