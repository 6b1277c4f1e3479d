package io.cairn.spark.metadata;

import java.io.IOException;
import java.net.URI;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.security.UserGroupInformation;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hadoop's S3 file systems with PUTs of one round trip, one per bucket and user, for the life of
 * the process.
 *
 * <p>The job's own file system stays as it is: it may be created by threads that do not see Cairn's
 * classes, and a setting with an unknown class would make it unusable.
 */
final class S3Files {
  private static final Logger LOG = LoggerFactory.getLogger(S3Files.class);

  /** Of the HTTP client; the AWS SDK adds the header in spite of it. */
  private static final String EXPECT_CONTINUE = "fs.s3a.connection.expect.continue";

  private static final String INTERCEPTORS = "fs.s3a.audit.execution.interceptors";
  private static final String ONE_ROUND_TRIP = "io.cairn.spark.s3a.OneRoundTrip";

  /** S3A installs interceptors only where its auditing is enabled. */
  private static final String AUDIT = "fs.s3a.audit.enabled";

  private static final String AUDITOR = "fs.s3a.audit.service.classname";
  private static final String NO_AUDITOR = "org.apache.hadoop.fs.s3a.audit.impl.NoopAuditor";
  private static final Map<Bucket, Open> OPEN = new ConcurrentHashMap<>();

  private record Bucket(URI uri, UserGroupInformation user) {}

  /** A file system and the job's one from which it was made: {@code closeAll} closes both. */
  private record Open(FileSystem ofJob, FileSystem files) {}

  private S3Files() {}

  /**
   * Returns the file system of a path; the job's own one if the AWS SDK does not have the expected
   * classes, or if the job wants no shared file systems.
   */
  static FileSystem of(Path path, Configuration hadoop) throws IOException {
    FileSystem ofJob = path.getFileSystem(hadoop);
    URI uri = ofJob.getUri();
    boolean isShared = !hadoop.getBoolean("fs." + uri.getScheme() + ".impl.disable.cache", false);
    if (!isShared || !canIntercept()) {
      return ofJob;
    }
    Bucket bucket = new Bucket(uri, UserGroupInformation.getCurrentUser());
    return OPEN.compute(
            bucket,
            (key, open) ->
                open != null && open.ofJob == ofJob
                    ? open
                    : new Open(ofJob, intercepted(ofJob, hadoop)))
        .files;
  }

  private static FileSystem intercepted(FileSystem ofJob, Configuration hadoop) {
    try {
      return FileSystem.newInstance(ofJob.getUri(), withInterceptor(hadoop));
    } catch (IOException | RuntimeException e) {
      LOG.warn(
          "PUTs to {} take two round trips: the interceptor cannot be used", ofJob.getUri(), e);
      return ofJob;
    }
  }

  private static boolean canIntercept() {
    try {
      Class.forName(ONE_ROUND_TRIP, true, S3Files.class.getClassLoader());
      return true;
    } catch (ClassNotFoundException | LinkageError e) {
      return false;
    }
  }

  private static Configuration withInterceptor(Configuration hadoop) {
    Configuration own = new Configuration(hadoop);
    own.setClassLoader(S3Files.class.getClassLoader());
    own.setBoolean(EXPECT_CONTINUE, false);
    if (!own.getBoolean(AUDIT, true)) {
      own.setBoolean(AUDIT, true);
      own.set(AUDITOR, NO_AUDITOR);
    }
    String ofJob = own.getTrimmed(INTERCEPTORS, "");
    own.set(INTERCEPTORS, ofJob.isEmpty() ? ONE_ROUND_TRIP : ofJob + "," + ONE_ROUND_TRIP);
    return own;
  }
}
