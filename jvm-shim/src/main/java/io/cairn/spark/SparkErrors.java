package io.cairn.spark;

import io.cairn.spark.errors.CairnException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.errors.QueryExecutionErrors;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors;

/** Translates errors into Spark's exceptions. Cairn's error is the cause of the exception. */
final class SparkErrors {
  private SparkErrors() {}

  /** Throws the exception that Spark expects if a version cannot be loaded. */
  static RuntimeException cannotLoad(Throwable error, Path root) {
    if (error instanceof CairnException cairn && cairn.code().equals("CAIRN_MISSING")) {
      Path missing = cairn.object() == null ? root : new Path(root, relative(cairn.object()));
      throw SparkErrors.<RuntimeException>sneaky(
          QueryExecutionErrors.failedToReadStreamingStateFileError(missing, error));
    }
    throw SparkErrors.<RuntimeException>sneaky(StateStoreErrors.cannotLoadStore(error));
  }

  /** What Spark expects if a snapshot that it names is missing; other errors stay unchanged. */
  static RuntimeException missingSnapshot(CairnException error, String provider) {
    if (!error.code().equals("CAIRN_MISSING")
        || error.object() == null
        || !error.object().contains("snapshot/")) {
      return error;
    }
    RuntimeException missing =
        StateStoreErrors.stateStoreSnapshotFileNotFound(error.object(), provider);
    missing.addSuppressed(error);
    return missing;
  }

  /** Throws the exception that Spark expects if a version cannot be made durable. */
  static RuntimeException cannotCommit(String store, Throwable error) {
    throw SparkErrors.<RuntimeException>sneaky(
        QueryExecutionErrors.failedToCommitStateFileError(store, error));
  }

  /** The name of an object below the store's folder, without its scheme or bucket. */
  private static String relative(String object) {
    int start =
        Math.max(
            object.lastIndexOf("changelog/"),
            Math.max(object.lastIndexOf("snapshot/"), object.lastIndexOf("sst/")));
    return object.substring(start >= 0 ? start : object.lastIndexOf('/') + 1);
  }

  @SuppressWarnings("unchecked")
  static <E extends Throwable> E sneaky(Throwable error) throws E {
    throw (E) error;
  }
}
