package io.cairn.spark.metadata;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What is said when another driver wrote a file first. */
final class SecondDriver {
  private static final Logger LOG = LoggerFactory.getLogger(SecondDriver.class);

  private SecondDriver() {}

  /**
   * Returns the error that Spark reports as "Multiple streaming queries are concurrently using".
   *
   * @param file the file, which the other driver created
   * @param written when and by whom, e.g. {@code "at 12:00 by application app-1 of driver a"}
   * @param failure why the file could not be created
   */
  static FileAlreadyExistsException at(Path file, String written, Throwable failure) {
    FileAlreadyExistsException exists = new FileAlreadyExistsException(file + " exists already");
    exists.initCause(reason(file, written, failure));
    return exists;
  }

  /**
   * Says so in the log: Spark itself finds the entry, and its error does not name the other driver.
   *
   * @param written as in {@link #at}
   */
  static void warn(Path file, String written) {
    LOG.warn("{}", reason(file, written, null).getMessage());
  }

  private static CairnException reason(Path file, String written, Throwable failure) {
    return CairnException.of(
        ErrorKind.CONFLICT,
        "CAIRN_FENCED",
        "two drivers use one checkpoint: "
            + file
            + " exists, written "
            + written
            + "; this driver is "
            + thisDriver(),
        "end one of the two queries, and start the other one again if it has failed; it"
            + " continues after the last committed batch",
        failure);
  }

  /** This process in the errors of another one: application and host. */
  static String thisDriver() {
    SparkEnv environment = SparkEnv.get();
    if (environment == null) {
      return "a process without a Spark application";
    }
    SparkConf conf = environment.conf();
    return "application "
        + conf.get("spark.app.id", "(not started)")
        + " of driver "
        + conf.get("spark.driver.host", "(unknown)");
  }
}
