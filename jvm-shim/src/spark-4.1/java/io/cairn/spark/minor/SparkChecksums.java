package io.cairn.spark.minor;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.RocksDBValueStateEncoder;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import scala.collection.Iterator;

/** This Spark has no checksums of rows, so there is no object of this class. */
public abstract class SparkChecksums {
  private SparkChecksums() {}

  /** Returns null: the settings cannot ask for checksums. */
  public static SparkChecksums of(StateStoreConf conf, String store) {
    return null;
  }

  /** Whether Spark found that a value is not its key's own. */
  public static boolean isMismatch(Exception failure) {
    return false;
  }

  public abstract byte[] add(byte[] key, byte[] value);

  public abstract byte[] verified(byte[] key, byte[] stored);

  public abstract Iterator<UnsafeRow> values(
      RocksDBValueStateEncoder encoder, byte[] key, byte[] stored);
}
