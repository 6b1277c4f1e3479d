package io.cairn.spark.minor;

import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;

/** Spark's provider, with the methods of the newest minor. */
public abstract class MinorProvider extends RocksDBStateStoreProvider {}
