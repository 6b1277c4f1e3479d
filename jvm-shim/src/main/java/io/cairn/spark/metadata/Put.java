package io.cairn.spark.metadata;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * One file's way to S3, and what became of it.
 *
 * <p>The answer to a PUT can be lost after S3 has stored the object. S3A then repeats the PUT, and
 * S3 answers that the object exists. So a creating PUT writes an id of its own into the object's
 * metadata. After each failure one HEAD reads the id of the object that is there:
 *
 * <pre>
 *   own id       the PUT succeeded
 *   another id   another driver was first: FileAlreadyExistsException, its object stays as it is
 *   no object    the PUT is repeated (S3 answers 409 while another request for the name runs)
 * </pre>
 *
 * A replacing PUT may be repeated without harm, and S3A does so.
 */
final class Put {
  /** Hadoop's option, and the capability, of a creation that fails if the file exists. */
  static final String CONDITIONAL = "fs.option.create.conditional.overwrite";

  /** Skips S3A's own checks before the PUT: two more requests. */
  private static final String WITHOUT_CHECKS = "fs.s3a.create.performance";

  private static final String HEADER = "fs.s3a.create.header.";
  private static final String ATTRIBUTE = "header.";
  private static final String PUT_ID = "cairn-put-id";
  private static final String WRITER = "cairn-writer";
  private static final String LAST_MODIFIED = "Last-Modified";

  /** What S3A throws for status 412. Named, because its class may be absent. */
  private static final String REFUSED = "org.apache.hadoop.fs.s3a.RemoteFileChangedException";

  /** What S3A throws for status 501, and for some others. */
  private static final String UNSUPPORTED =
      "org.apache.hadoop.fs.s3a.AWSUnsupportedFeatureException";

  private static final int NOT_IMPLEMENTED = 501;
  private static final int ATTEMPTS_MAX = 5;
  private static final long PAUSE_MS = 100;

  /** Buckets that honour the condition; each is tried once. */
  private static final Set<String> TRIED_BUCKETS = ConcurrentHashMap.newKeySet();

  private final FileSystem files;
  private final Path file;

  /** Null: the PUT replaces the file. */
  private final String id;

  private Put(FileSystem files, Path file, String id) {
    this.files = files;
    this.file = file;
    this.id = id;
  }

  /** A PUT that fails if the file exists. */
  static Put creating(FileSystem files, Path file) {
    return new Put(files, file, UUID.randomUUID().toString());
  }

  /** A PUT that replaces the file if it exists. */
  static Put replacing(FileSystem files, Path file) {
    return new Put(files, file, null);
  }

  Path file() {
    return file;
  }

  /**
   * Stores the file.
   *
   * @throws FileAlreadyExistsException another writer created it; it is unchanged
   * @throws CairnException the server does not honour the condition
   * @throws IOException the outcome is unknown, or the file is not stored
   */
  void send(byte[] content) throws IOException {
    for (int attempt = 1; ; attempt++) {
      try {
        sendOnce(content, id);
        break;
      } catch (IOException e) {
        if (id == null || isFinal(e)) {
          throw e;
        }
        requireImplemented(e);
        if (isStored(e)) {
          break;
        }
        if (attempt == ATTEMPTS_MAX) {
          throw e;
        }
        pause(attempt, e);
      }
    }
    if (id != null) {
      tryBucket(content);
    }
  }

  /** Opens a stream for a file of any size; its end is {@link #close}. */
  FSDataOutputStream open() throws IOException {
    return open(id);
  }

  /** Completes the stream; throws as {@link #send} does. */
  void close(FSDataOutputStream stream) throws IOException {
    try {
      stream.close();
    } catch (IOException e) {
      if (id == null || isFinal(e)) {
        throw e;
      }
      requireImplemented(e);
      if (!isStored(e)) {
        throw e;
      }
    }
  }

  private void sendOnce(byte[] content, String ownId) throws IOException {
    FSDataOutputStream stream = open(ownId);
    stream.write(content);
    stream.close();
  }

  private FSDataOutputStream open(String ownId) throws IOException {
    FSDataOutputStreamBuilder<?, ?> builder = files.createFile(file);
    builder.overwrite(true);
    builder.recursive();
    if (ownId == null) {
      builder.opt(WITHOUT_CHECKS, "true");
    } else {
      builder.must(CONDITIONAL, "true");
      builder.opt(HEADER + PUT_ID, ownId);
      builder.opt(HEADER + WRITER, SecondDriver.thisDriver());
    }
    return builder.build();
  }

  /** Whether a repetition cannot help, and the file cannot be there. */
  private static boolean isFinal(IOException error) {
    return isInterrupted(error) || error instanceof AccessDeniedException;
  }

  /** Whether the thread was interrupted: Spark ends a query that was stopped. */
  static boolean isInterrupted(IOException error) {
    return error instanceof InterruptedIOException && !(error instanceof SocketTimeoutException);
  }

  /** Throws the error of a server that does not know the condition: it stored nothing. */
  private void requireImplemented(IOException failure) {
    if (failure.getClass().getName().equals(UNSUPPORTED) && status(failure) == NOT_IMPLEMENTED) {
      throw noConditionalPut("does not implement If-None-Match (status 501)", failure);
    }
  }

  /** The server's status in an error of S3A; 0: not known. */
  private static int status(IOException failure) {
    try {
      return (int) failure.getClass().getMethod("statusCode").invoke(failure);
    } catch (ReflectiveOperationException e) {
      return 0;
    }
  }

  private CairnException noConditionalPut(String what, IOException cause) {
    return CairnException.of(
        ErrorKind.INVALID,
        "CAIRN_NO_CONDITIONAL_PUT",
        "the server of "
            + bucket()
            + " "
            + what
            + ": two drivers could overwrite each other's files",
        "use a server that honours it, or set fs.s3a.create.conditional.enabled to false: Spark"
            + " then writes its files by rename, without this protection",
        cause);
  }

  private String bucket() {
    return file.toUri().getScheme() + "://" + file.toUri().getAuthority();
  }

  /**
   * Whether the failed PUT stored the file after all; false: there is no such file.
   *
   * @throws FileAlreadyExistsException another writer created it
   */
  private boolean isStored(IOException failure) throws IOException {
    Map<String, byte[]> attributes;
    try {
      attributes = files.getXAttrs(file);
    } catch (FileNotFoundException e) {
      return false;
    } catch (IOException e) {
      if (isInterrupted(e)) {
        e.addSuppressed(failure);
        throw e;
      }
      failure.addSuppressed(e);
      throw failure;
    }
    if (id.equals(attribute(attributes, PUT_ID))) {
      return true;
    }
    throw SecondDriver.at(file, written(attributes), failure);
  }

  /**
   * Says when and by whom a file was written, e.g. {@code "at Mon, 23 Nov 2026 01:50:00 GMT by
   * application app-1 of driver a"}.
   *
   * @throws FileNotFoundException there is no such file
   */
  static String written(FileSystem files, Path file) throws IOException {
    return written(files.getXAttrs(file));
  }

  private static String written(Map<String, byte[]> attributes) {
    String writer = attribute(attributes, WRITER);
    return "at "
        + attribute(attributes, LAST_MODIFIED)
        + " by "
        + (writer == null ? "another program" : writer);
  }

  private static String attribute(Map<String, byte[]> attributes, String name) {
    // Some servers and proxies capitalise the names of headers, and S3A keeps that.
    return attributes.entrySet().stream()
        .filter(attribute -> attribute.getKey().equalsIgnoreCase(ATTRIBUTE + name))
        .map(attribute -> new String(attribute.getValue(), StandardCharsets.UTF_8))
        .findFirst()
        .orElse(null);
  }

  private static void pause(int attempt, IOException failure) throws IOException {
    long longest = PAUSE_MS << (attempt - 1);
    try {
      Thread.sleep(longest / 2 + ThreadLocalRandom.current().nextLong(longest / 2 + 1));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw (IOException)
          new InterruptedIOException("interrupted before a PUT was repeated").initCause(failure);
    }
  }

  /**
   * Writes the file that was just stored once more, once per process and bucket: a server that does
   * not refuse this ignores the condition, and two drivers would overwrite each other's files.
   */
  private void tryBucket(byte[] content) throws IOException {
    if (TRIED_BUCKETS.contains(bucket())) {
      return;
    }
    try {
      sendOnce(content, UUID.randomUUID().toString());
    } catch (IOException e) {
      if (e.getClass().getName().equals(REFUSED)) {
        TRIED_BUCKETS.add(bucket());
      }
      // Otherwise the server did not answer; the next file tries again.
      return;
    }
    throw noConditionalPut("ignores If-None-Match", null);
  }
}
