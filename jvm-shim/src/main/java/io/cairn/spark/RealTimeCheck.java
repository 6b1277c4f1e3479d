package io.cairn.spark;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import java.util.UUID;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import scala.Option;

/**
 * Refuses a query in real-time mode before its first batch.
 *
 * <p>Since 4.2 Spark refuses a session whose provider is not its own. It does not look into the
 * checkpoint: a query whose checkpoint names Cairn, in a session without a provider, would run.
 */
final class RealTimeCheck {
  /** By name: older versions of Spark do not have the class. */
  private static final String TRIGGER = "RealTimeTrigger";

  private RealTimeCheck() {}

  /** Throws if the query that this thread plans has the trigger of real-time mode. */
  static void refuse() {
    Option<SparkSession> session = SparkSession.getActiveSession();
    if (session.isEmpty()) {
      return;
    }
    SparkContext context = session.get().sparkContext();
    String id = context.getLocalProperty(StreamExecution.QUERY_ID_KEY());
    StreamExecution query =
        id == null
            ? null
            : session.get().sharedState().activeStreamingQueries().get(UUID.fromString(id));
    if (query != null && query.trigger().getClass().getSimpleName().equals(TRIGGER)) {
      throw CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_REAL_TIME",
          "real-time mode does not support the state of Cairn, which the checkpoint of query "
              + id
              + " names",
          "use a trigger of micro-batches (processingTime, availableNow), or start with a new"
              + " checkpointLocation and Spark's RocksDBStateStoreProvider");
    }
  }
}
