package io.cairn.spark;

import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Warns of speculation with checkpoint format 1, where all attempts at a version share its name.
 *
 * <p>If a task and its twin both end before their batch is committed, the later attempt's state
 * stays, whichever of both Spark has taken. That makes a difference if they wrote different rows.
 */
final class SpeculationCheck {
  private static final Logger LOG = LoggerFactory.getLogger(SpeculationCheck.class);
  private static final AtomicBoolean IS_WARNED = new AtomicBoolean();

  private SpeculationCheck() {}

  /**
   * Warns once per process.
   *
   * @param hasCheckpointIds whether the checkpoint has format 2
   */
  static void warn(boolean hasCheckpointIds) {
    SparkEnv spark = SparkEnv.get();
    if (spark != null) {
      warn(spark.conf(), hasCheckpointIds, IS_WARNED);
    }
  }

  static void warn(SparkConf conf, boolean hasCheckpointIds, AtomicBoolean isWarned) {
    if (!hasCheckpointIds
        && conf.getBoolean("spark.speculation", false)
        && isWarned.compareAndSet(false, true)) {
      LOG.warn(
          "spark.speculation is true, and this checkpoint has format 1: if a task and its twin both"
              + " end before their batch is committed, the state is that of the later one. With"
              + " functions that are not deterministic it may differ from what the query wrote."
              + " Start new checkpoints with"
              + " spark.sql.streaming.stateStore.checkpointFormatVersion=2, as"
              + " cairn.spark_conf() does, or set spark.speculation=false");
    }
  }
}
