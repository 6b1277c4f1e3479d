package io.cairn.spark.minor;

import org.apache.spark.sql.execution.streaming.state.RangeKeyScanStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBDataEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBKeyStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBValueStateEncoder;
import org.apache.spark.sql.types.StructType;

/** Calls of Spark whose form changed with 4.2. */
public final class SparkApi {
  /** Whether only an extension can let {@code transformWithState} run on Cairn. */
  public static final boolean IS_TRANSFORM_RESTRICTED = false;

  private SparkApi() {}

  /** The encoder of values, without a delimiter between those of a list. */
  public static RocksDBValueStateEncoder valueEncoder(
      RocksDBDataEncoder data, StructType schema, boolean isMulti) {
    RocksDBValueStateEncoder spark = RocksDBStateEncoder.getValueEncoder(data, schema, isMulti);
    return isMulti ? new ListEncoder(data, spark) : spark;
  }

  /** Whether encoded keys have the order of their rows. */
  public static boolean supportsRangeScan(RocksDBKeyStateEncoder encoder) {
    return encoder instanceof RangeKeyScanStateEncoder;
  }

  public static boolean supportsDeleteRange(RocksDBKeyStateEncoder encoder) {
    return supportsRangeScan(encoder);
  }
}
