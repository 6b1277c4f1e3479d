package io.cairn.spark.metadata;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/**
 * A local folder with what S3A adds to a file system: conditional creation, attributes of objects,
 * bulk deletion. It counts the requests of each kind. For one thread.
 */
final class FakeS3 extends RawLocalFileSystem {
  static final int PAGE_SIZE = 250;

  /** Requests by name: PUT, LIST, bulk delete, delete. */
  final Map<String, Integer> requests = new HashMap<>();

  /** Errors of the next PUTs, which store nothing. */
  final ArrayDeque<IOException> putFailures = new ArrayDeque<>();

  /** Errors of the next PUTs, which store the file nevertheless. */
  final ArrayDeque<IOException> lostAnswers = new ArrayDeque<>();

  /** Whether the names of attributes come in capitals. */
  boolean capitalises;

  /** The error of each request for attributes; null: none. */
  IOException attributesFailure;

  /** Names that a bulk deletion refuses. */
  final Set<String> refusedInBulk = new HashSet<>();

  /** Names that a single deletion refuses. */
  final Set<String> refused = new HashSet<>();

  private final Map<Path, Map<String, byte[]>> attributes = new HashMap<>();

  FakeS3() throws IOException {
    initialize(getUri(), new Configuration());
  }

  int count(String request) {
    return requests.getOrDefault(request, 0);
  }

  private void note(String request) {
    requests.merge(request, 1, Integer::sum);
  }

  @Override
  @SuppressWarnings({"rawtypes", "unchecked"})
  public FSDataOutputStreamBuilder createFile(Path file) {
    return new Builder(file);
  }

  private final class Builder extends FSDataOutputStreamBuilder<FSDataOutputStream, Builder> {
    Builder(Path file) {
      super(FakeS3.this, file);
    }

    @Override
    public Builder getThisBuilder() {
      return this;
    }

    @Override
    public FSDataOutputStream build() throws IOException {
      return new FSDataOutputStream(new Upload(getPath(), getOptions()), null);
    }
  }

  /** The bytes of one PUT, which is sent when the stream is closed. */
  private final class Upload extends OutputStream {
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    private final Path file;
    private final Configuration options;

    Upload(Path file, Configuration options) {
      this.file = file;
      this.options = options;
    }

    @Override
    public void write(int value) {
      bytes.write(value);
    }

    @Override
    public void close() throws IOException {
      note("PUT");
      if (!putFailures.isEmpty()) {
        throw putFailures.remove();
      }
      if (options.getBoolean(Put.CONDITIONAL, false) && pathToFile(file).exists()) {
        throw new IOException("412 Precondition Failed");
      }
      Files.write(pathToFile(file).toPath(), bytes.toByteArray());
      Map<String, byte[]> own = new HashMap<>();
      String header = "fs.s3a.create.header.";
      options
          .getPropsWithPrefix(header)
          .forEach((k, v) -> own.put("header." + named(k), v.getBytes(StandardCharsets.UTF_8)));
      attributes.put(makeQualified(file), own);
      if (!lostAnswers.isEmpty()) {
        throw lostAnswers.remove();
      }
    }
  }

  private String named(String header) {
    return capitalises ? header.toUpperCase(Locale.ROOT) : header;
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path file) throws IOException {
    if (attributesFailure != null) {
      throw attributesFailure;
    }
    getFileStatus(file);
    return attributes.getOrDefault(makeQualified(file), Map.of());
  }

  @Override
  public FileStatus[] listStatus(Path folder) throws IOException {
    note("LIST");
    return super.listStatus(folder);
  }

  @Override
  public boolean delete(Path file, boolean recursive) throws IOException {
    note("delete");
    if (refused.contains(file.getName())) {
      throw new IOException(file + " is refused");
    }
    return super.delete(file, recursive);
  }

  @Override
  public BulkDelete createBulkDelete(Path folder) {
    return new BulkDelete() {
      @Override
      public int pageSize() {
        return PAGE_SIZE;
      }

      @Override
      public Path basePath() {
        return folder;
      }

      @Override
      public List<Map.Entry<Path, String>> bulkDelete(Collection<Path> files) throws IOException {
        note("bulk delete");
        List<Map.Entry<Path, String>> failures = new ArrayList<>();
        for (Path file : files) {
          if (refusedInBulk.contains(file.getName())) {
            failures.add(Map.entry(file, "InternalError"));
          } else {
            Files.deleteIfExists(pathToFile(file).toPath());
          }
        }
        return failures;
      }

      @Override
      public void close() {}
    };
  }
}
