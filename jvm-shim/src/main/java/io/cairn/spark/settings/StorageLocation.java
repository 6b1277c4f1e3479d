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
  private final String authority;
  private final String path;
  private final String url;

  private StorageLocation(String scheme, String authority, String path, String url) {
    this.scheme = scheme;
    this.authority = authority;
    this.path = path;
    this.url = url;
  }

  /** Reads the root of a store. */
  public static StorageLocation of(Path root, Configuration hadoop) {
    URI uri = root.toUri();
    String scheme = uri.getScheme();
    String authority = uri.getAuthority();
    if (scheme == null) {
      URI byDefault = FileSystem.getDefaultUri(hadoop);
      scheme = byDefault.getScheme();
      authority = byDefault.getAuthority();
    }
    String known = scheme.toLowerCase(Locale.ROOT);
    // Neither Hadoop's paths nor the engine's are percent-encoded.
    String path = uri.getPath();
    if (known.equals("file")) {
      return new StorageLocation(known, null, path, path);
    }
    if (!S3.contains(known)) {
      // As it is written: Hadoop looks for fs.<scheme>.impl with its capital letters.
      String server = authority == null ? "" : authority;
      return new StorageLocation(scheme, authority, path, scheme + "://" + server + path);
    }
    if (authority == null) {
      throw CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_CONFIG",
          "the checkpoint location " + root + " names no bucket",
          "write s3a://<bucket>/<path>");
    }
    return new StorageLocation(known, authority, path, known + "://" + authority + path);
  }

  /** The URL that the engine opens: a plain path, or {@code scheme://authority/path}. */
  public String url() {
    return url;
  }

  public boolean isS3() {
    return S3.contains(scheme);
  }

  public boolean isFile() {
    return scheme.equals("file");
  }

  /** Whether only Hadoop's file systems reach it, and so only this JVM. */
  public boolean isOfHadoop() {
    return !isS3() && !isFile();
  }

  /** The bucket of S3. */
  public String bucket() {
    return authority;
  }

  /** The location for Hadoop. */
  public Path hadoopPath() {
    return new Path(scheme, authority, path);
  }
}
