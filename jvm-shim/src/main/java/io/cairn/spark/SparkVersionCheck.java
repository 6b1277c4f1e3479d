package io.cairn.spark;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.minor.SparkMinor;

/**
 * Refuses to run on another minor of Spark than the one that this jar is for.
 *
 * <p>Such a jar may load, and fail later at a method that changed: perhaps in the commit of a
 * batch.
 */
final class SparkVersionCheck {
  private SparkVersionCheck() {}

  /** Throws if the Spark of this JVM is of another minor. */
  static void require() {
    require(org.apache.spark.package$.MODULE$.SPARK_VERSION());
  }

  /**
   * @param running full version of Spark, such as 4.3.0 or 4.3.1-vendor-2
   */
  static void require(String running) {
    if (!running.startsWith(SparkMinor.NAME + ".")) {
      throw CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_SPARK_VERSION",
          "this jar of Cairn is for Spark " + SparkMinor.NAME + ", but this is Spark " + running,
          "use the jar that `cairn jar` prints beside this Spark; cairn.spark_conf() does");
    }
  }
}
