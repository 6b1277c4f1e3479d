package io.cairn.spark.metadata;

import java.io.IOException;
import java.net.URI;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.IOUtils;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.ReflectionUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hadoop's S3 file systems with PUTs of one round trip, one per bucket and user, for the life of
 * the process. They are not in Hadoop's cache: {@code FileSystem.closeAll}, which any code of a job
 * may call, would end the queries that use them.
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

  /** The file system of a bucket, and the job's one and its settings when it was first needed. */
  private static final class Open {
    private final FileSystem ofJob;
    private final Map<String, String> settings;

    /** Null: not initialized yet, or without success. */
    private FileSystem files;

    Open(FileSystem ofJob, Map<String, String> settings) {
      this.ofJob = ofJob;
      this.settings = settings;
    }

    /** Whether it serves a job that closed its file system; with other settings, it does not. */
    boolean serves(FileSystem job, Configuration hadoop) {
      return job == ofJob || settings.equals(s3aSettings(hadoop));
    }

    /** Initializes it, once, while others of this bucket wait. Null: that failed this time. */
    synchronized FileSystem files(URI uri, Configuration hadoop) {
      if (files == null) {
        files = initialized(uri, hadoop);
      }
      return files;
    }
  }

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
    return intercepted(ofJob, hadoop);
  }

  /** Returns the file system with the interceptor; the job's own one if it cannot be used. */
  static FileSystem intercepted(FileSystem ofJob, Configuration hadoop) throws IOException {
    URI uri = ofJob.getUri();
    Open open =
        OPEN.compute(
            new Bucket(uri, UserGroupInformation.getCurrentUser()),
            (bucket, known) ->
                known != null && known.serves(ofJob, hadoop)
                    ? known
                    : new Open(ofJob, s3aSettings(hadoop)));
    // Not within the map: it may wait for a token service, and other buckets would wait too.
    FileSystem files = open.files(uri, hadoop);
    return files == null ? ofJob : files;
  }

  private static FileSystem initialized(URI uri, Configuration hadoop) {
    FileSystem files = null;
    try {
      Configuration own = withInterceptor(hadoop);
      files = ReflectionUtils.newInstance(FileSystem.getFileSystemClass(uri.getScheme(), own), own);
      files.initialize(uri, own);
      return files;
    } catch (IOException | RuntimeException e) {
      IOUtils.closeStream(files);
      LOG.warn("PUTs to {} take two round trips: the interceptor cannot be used", uri, e);
      return null;
    }
  }

  private static Map<String, String> s3aSettings(Configuration hadoop) {
    return hadoop.getPropsWithPrefix("fs.s3a.");
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
