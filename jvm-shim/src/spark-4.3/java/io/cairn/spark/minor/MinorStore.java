package io.cairn.spark.minor;

import org.apache.spark.sql.execution.streaming.state.StateStore;

/** A store, with the methods of the newest minor. */
public interface MinorStore extends StateStore {}
