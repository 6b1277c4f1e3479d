package io.cairn.spark.minor;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangeDataReader;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import scala.Option;

/** The constructor of a reader of changes, which opens no file. */
public abstract class MinorChangeReader extends StateStoreChangeDataReader {
  protected MinorChangeReader(
      StateStoreId store,
      Path folder,
      long startVersion,
      long endVersion,
      StateStoreConf conf,
      String family) {
    super(store, null, folder, startVersion, endVersion, null, conf, Option.apply(family));
  }
}
