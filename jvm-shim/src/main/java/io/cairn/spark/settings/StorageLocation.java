package io.cairn.spark.settings;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import java.net.URI;
import java.util.Locale;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** The root of a store for the engine. Spec: docs/checkpoint-format.md, "Where, and an example". */
public final class StorageLocation {
  private static final Set<String> S3 = Set.of("s3", "s3a", "s3n");

  private final String scheme;
  private final String bucket;
  private final String url;

  private StorageLocation(String scheme, String bucket, String url) {
    this.scheme = scheme;
    this.bucket = bucket;
    this.url = url;
  }

  /** Reads the root of a store; refuses a scheme for which the engine has no storage. */
  public static StorageLocation of(Path root, Configuration hadoop) {
    URI uri = root.toUri();
    String scheme = uri.getScheme();
    String authority = uri.getAuthority();
    if (scheme == null) {
      URI byDefault = FileSystem.getDefaultUri(hadoop);
      scheme = byDefault.getScheme();
      authority = byDefault.getAuthority();
    }
    scheme = scheme.toLowerCase(Locale.ROOT);
    // Neither Hadoop's paths nor the engine's are percent-encoded.
    String path = uri.getPath();
    if (scheme.equals("file")) {
      return new StorageLocation(scheme, null, path);
    }
    if (!S3.contains(scheme)) {
      throw CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_SCHEME",
          "no storage for the scheme '"
              + scheme
              + "' of the checkpoint location "
              + root
              + "; use s3a, s3, s3n or file",
          "put the query's checkpointLocation on one of these");
    }
    if (authority == null) {
      throw CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_CONFIG",
          "the checkpoint location " + root + " names no bucket",
          "write s3a://<bucket>/<path>");
    }
    return new StorageLocation(scheme, authority, scheme + "://" + authority + path);
  }

  /** The URL that the engine opens: a plain path, or {@code s3a://bucket/path}. */
  public String url() {
    return url;
  }

  public boolean isS3() {
    return bucket != null;
  }

  public boolean isFile() {
    return scheme.equals("file");
  }

  /** The bucket; null for files. */
  public String bucket() {
    return bucket;
  }
}
