package io.cairn.spark;

import io.cairn.spark.errors.CairnException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.errors.QueryExecutionErrors;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors;

/** Decides which of Spark's exceptions an error becomes. Ours stays the cause, with its text. */
final class SparkErrors {
  private SparkErrors() {}

  /** Throws what Spark expects when a version cannot be loaded. */
  static RuntimeException cannotLoad(Throwable error, Path root) {
    if (error instanceof CairnException cairn && cairn.code().equals("CAIRN_MISSING")) {
      Path missing = cairn.object() == null ? root : new Path(root, lastPart(cairn.object()));
      throw SparkErrors.<RuntimeException>sneaky(
          QueryExecutionErrors.failedToReadStreamingStateFileError(missing, error));
    }
    throw SparkErrors.<RuntimeException>sneaky(StateStoreErrors.cannotLoadStore(error));
  }

  /** What Spark expects when a snapshot asked for by name is missing; any other error as it is. */
  static RuntimeException missingSnapshot(CairnException error) {
    if (!error.code().equals("CAIRN_MISSING")
        || error.object() == null
        || !error.object().contains("snapshot/")) {
      return error;
    }
    RuntimeException missing =
        StateStoreErrors.stateStoreSnapshotFileNotFound(
            error.object(), CairnStateStoreProvider.class.getName());
    missing.addSuppressed(error);
    return missing;
  }

  /** Throws what Spark expects when a version cannot be made durable. */
  static RuntimeException cannotCommit(String store, Throwable error) {
    throw SparkErrors.<RuntimeException>sneaky(
        QueryExecutionErrors.failedToCommitStateFileError(store, error));
  }

  /** Object names may hold a scheme or a bucket; the path in Spark's error is the store's own. */
  private static String lastPart(String object) {
    int changelog =
        Math.max(
            object.lastIndexOf("changelog/"),
            Math.max(object.lastIndexOf("snapshot/"), object.lastIndexOf("sst/")));
    return changelog >= 0
        ? object.substring(changelog)
        : object.substring(object.lastIndexOf('/') + 1);
  }

  @SuppressWarnings("unchecked")
  static <E extends Throwable> E sneaky(Throwable error) throws E {
    throw (E) error;
  }
}
