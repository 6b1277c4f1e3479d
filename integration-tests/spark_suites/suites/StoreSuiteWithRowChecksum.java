package io.cairn.suites;

import org.apache.spark.SparkConf;
import org.apache.spark.sql.internal.SQLConf;

/** The tests of {@link StoreSuite} once more, with row checksums. */
public final class StoreSuiteWithRowChecksum extends StoreSuite {
  private static final long serialVersionUID = 1L;

  @Override
  public SparkConf sparkConf() {
    return super.sparkConf().set(SQLConf.STATE_STORE_ROW_CHECKSUM_ENABLED().key(), "true");
  }
}
