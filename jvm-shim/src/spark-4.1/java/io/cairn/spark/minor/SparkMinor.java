package io.cairn.spark.minor;

import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSizeMetric;

/** The minor version of Spark that this jar is for. */
public final class SparkMinor {
  public static final String NAME = "4.1";

  private SparkMinor() {}

  /**
   * A metric in bytes.
   *
   * @param isPresent not used: this Spark does not tell present values from those of a batch
   */
  public static StateStoreCustomMetric sizeMetric(
      String name, String description, boolean isPresent) {
    return new StateStoreCustomSizeMetric(name, description);
  }
}
