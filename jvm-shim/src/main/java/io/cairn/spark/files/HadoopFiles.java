package io.cairn.spark.files;

import io.cairn.spark.errors.CairnException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.lang.reflect.UndeclaredThrowableException;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Abortable;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.Rename;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.hadoop.security.UserGroupInformation;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One file system of Hadoop's, used as one user.
 *
 * <p>Paths are absolute, without scheme and authority. A call is repeated once if somebody else,
 * such as {@code FileSystem.closeAll}, has closed the file system. Errors are Cairn's, and name the
 * file. Thread-safe.
 */
final class HadoopFiles {
  private static final Logger LOG = LoggerFactory.getLogger(HadoopFiles.class);

  /**
   * Object stores whose rename is a copy, but whose files appear when they are closed, and whose
   * creation without overwriting is a conditional request of the service.
   */
  private static final Set<String> PUBLISHING_BY_CLOSE = Set.of("gs");

  private final Path root;
  private final UserGroupInformation user;
  private volatile Configuration conf;
  private FileSystem files;
  private FileContext context;
  private boolean isWithoutContext;

  /** Takes the bytes of a file. */
  interface Sink {
    /**
     * @param hasMore whether bytes follow
     */
    void accept(byte[] bytes, int count, boolean hasMore);
  }

  /** Takes the files of a folder. */
  interface Listing {
    void accept(String path, FileStatus status);
  }

  private interface Call<T> {
    T on(FileSystem files) throws IOException;
  }

  private interface Step {
    void run() throws IOException;
  }

  /**
   * @param root any path of the file system; only its scheme and authority are used
   */
  HadoopFiles(Path root, UserGroupInformation user, Configuration conf) {
    this.root = root;
    this.user = user;
    this.conf = conf;
  }

  /** Uses other settings from the next time on that the file system is opened. */
  void use(Configuration newer) {
    conf = newer;
  }

  boolean publishesByClose() {
    return PUBLISHING_BY_CLOSE.contains(root.toUri().getScheme());
  }

  String url(String path) {
    return path(path).toString();
  }

  FileStatus status(String path) {
    return run(path, opened -> opened.getFileStatus(path(path)));
  }

  /**
   * Reads a part of a file. The status comes first; the sink gets nothing if the part is empty.
   *
   * @param begin called once, with whether bytes follow
   */
  void read(String path, long offset, long length, Begin begin, Sink sink, byte[] buffer) {
    run(
        path,
        opened -> {
          FileStatus status = opened.getFileStatus(path(path));
          if (status.isDirectory()) {
            throw new java.io.FileNotFoundException("a folder is not a file");
          }
          long rest = Math.max(0, Math.min(length, status.getLen() - offset));
          if (rest == 0) {
            begin.accept(status, false);
            return null;
          }
          FSDataInputStream in = open(opened, status, path);
          try (in) {
            if (offset > 0) {
              in.seek(offset);
            }
            // After the open: most failures are found before the reply begins.
            begin.accept(status, true);
            send(in, rest, sink, buffer);
          } catch (IOException e) {
            // Not repeated: the reply has begun.
            throw FileErrors.translate(e, url(path));
          }
          return null;
        });
  }

  private static void send(FSDataInputStream in, long length, Sink sink, byte[] buffer)
      throws IOException {
    long rest = length;
    while (rest > 0) {
      int count = (int) Math.min(rest, buffer.length);
      in.readFully(buffer, 0, count);
      rest -= count;
      sink.accept(buffer, count, rest > 0);
    }
  }

  /** Takes the status of a file that is read. */
  interface Begin {
    void accept(FileStatus status, boolean hasBytes);
  }

  private FSDataInputStream open(FileSystem opened, FileStatus status, String path)
      throws IOException {
    try {
      // Some file systems then need no second request for the length.
      return opened.openFile(path(path)).withFileStatus(status).build().get();
    } catch (InterruptedException e) {
      throw (IOException) new InterruptedIOException("interrupted").initCause(e);
    } catch (java.util.concurrent.ExecutionException e) {
      throw e.getCause() instanceof IOException known ? known : new IOException(e.getCause());
    }
  }

  /** Creates a file, and the folders above it; the caller writes it, and then ends it. */
  NewFile create(String path, boolean replaces) {
    return run(path, opened -> new NewFile(path, opened.create(path(path), replaces), replaces));
  }

  /** A file that is being written. One thread at a time. */
  final class NewFile {
    private final String path;
    private final FSDataOutputStream out;
    private final boolean replaces;

    private NewFile(String path, FSDataOutputStream out, boolean replaces) {
      this.path = path;
      this.out = out;
      this.replaces = replaces;
    }

    void write(byte[] bytes, int count) {
      transfer(() -> out.write(bytes, 0, count));
    }

    /** Completes the file. */
    void close() {
      transfer(out::close);
    }

    private void transfer(Step step) {
      as(
          path,
          () -> {
            try {
              step.run();
            } catch (IOException e) {
              if (!replaces && FileErrors.isTaken(e)) {
                throw (IOException)
                    new FileAlreadyExistsException("it was created meanwhile").initCause(e);
              }
              throw e;
            }
            return null;
          });
    }

    /** Gives the file up, so that it never appears whole. */
    void abandon() {
      try {
        as(
            path,
            () -> {
              if (publishesByClose()) {
                // Closing would publish what was written so far.
                if (out.getWrappedStream() instanceof Abortable abortable) {
                  abortable.abort();
                }
                return null;
              }
              try {
                out.close();
              } finally {
                opened().delete(path(path), false);
              }
              return null;
            });
      } catch (CairnException e) {
        LOG.warn("a part of a file was left: {}", e.getMessage());
      }
    }
  }

  /** Renames a file; without {@code replaces}, fails if the target exists. */
  void rename(String from, String to, boolean replaces) {
    run(
        to,
        opened -> {
          FileContext atomic = context();
          if (atomic != null) {
            atomic.rename(path(from), path(to), replaces ? Rename.OVERWRITE : Rename.NONE);
            return null;
          }
          // The same as FileContext does for these file systems, but not atomic.
          if (replaces) {
            opened.delete(path(to), false);
          } else if (opened.exists(path(to))) {
            throw new FileAlreadyExistsException("the target of a rename exists");
          }
          if (!opened.rename(path(from), path(to))) {
            opened.getFileStatus(path(from));
            throw new FileAlreadyExistsException("the target of a rename cannot be created");
          }
          return null;
        });
  }

  /** Lists all files below a folder; there are none if it does not exist. */
  void list(String folder, Listing listing) {
    ArrayDeque<Path> folders = new ArrayDeque<>(List.of(path(folder)));
    String prefix = folder.endsWith("/") ? folder : folder + "/";
    while (!folders.isEmpty()) {
      for (FileStatus status : children(folders.removeLast())) {
        String path = status.getPath().toUri().getPath();
        if (status.isDirectory()) {
          folders.addLast(path(path));
        } else if (path.startsWith(prefix)) {
          listing.accept(path.substring(prefix.length()), status);
        }
      }
    }
  }

  private List<FileStatus> children(Path folder) {
    return run(
        folder.toUri().getPath(),
        opened -> {
          List<FileStatus> children = new ArrayList<>();
          try {
            RemoteIterator<FileStatus> found = opened.listStatusIterator(folder);
            while (found.hasNext()) {
              children.add(found.next());
            }
          } catch (IOException e) {
            if (!FileErrors.isMissing(e)) {
              throw e;
            }
            if (!children.isEmpty()) {
              // Not as its cause: it would say that there is no such folder.
              IOException cut = new IOException("the folder vanished while it was listed");
              cut.addSuppressed(e);
              throw cut;
            }
          }
          return children;
        });
  }

  /** Deletes files; folders and names that do not exist are left out. */
  void delete(List<String> paths) {
    for (String path : paths) {
      run(
          path,
          opened -> {
            try {
              opened.delete(path(path), false);
            } catch (IOException e) {
              if (!FileErrors.isMissing(e) && !isFolder(opened, path)) {
                throw e;
              }
            }
            return null;
          });
    }
  }

  private boolean isFolder(FileSystem opened, String path) {
    try {
      return opened.getFileStatus(path(path)).isDirectory();
    } catch (IOException e) {
      return false;
    }
  }

  private Path path(String path) {
    return new Path(root.toUri().getScheme(), root.toUri().getAuthority(), path);
  }

  private <T> T run(String path, Call<T> call) {
    return as(
        path,
        () -> {
          FileSystem opened = opened();
          try {
            return call.on(opened);
          } catch (IOException e) {
            if (!FileErrors.isClosed(e)) {
              throw e;
            }
            LOG.info("{} was closed by others; it is opened again", url("/"));
            forget(opened);
            return call.on(opened());
          }
        });
  }

  /** Runs as the user; translates errors. */
  private <T> T as(String path, PrivilegedExceptionAction<T> action) {
    try {
      return user.doAs(action);
    } catch (IOException | UncheckedIOException e) {
      throw FileErrors.translate(e instanceof UncheckedIOException u ? u.getCause() : e, url(path));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw FileErrors.translate(new InterruptedIOException("interrupted"), url(path));
    } catch (UndeclaredThrowableException e) {
      throw FileErrors.translate(e.getCause() instanceof Exception cause ? cause : e, url(path));
    } catch (OutOfMemoryError e) {
      // Connectors of object stores take buffers of many MiB per file. The thread must go on.
      throw FileErrors.outOfMemory(e);
    } catch (CairnException e) {
      throw e;
    } catch (RuntimeException | LinkageError e) {
      // Of an invalid name, of a connector, or of a connector whose jars do not match.
      throw FileErrors.translate(e, url(path));
    }
  }

  private synchronized FileSystem opened() throws IOException {
    if (files == null) {
      files = FileSystem.get(root.toUri(), conf);
    }
    return files;
  }

  /** The way to an atomic rename, or null if the file system has none. */
  private synchronized FileContext context() throws IOException {
    if (context == null && !isWithoutContext) {
      try {
        context = FileContext.getFileContext(root.toUri(), conf);
      } catch (UnsupportedFileSystemException e) {
        isWithoutContext = true;
        LOG.warn(
            "Hadoop has no FileContext for {}: of two tasks that create one file at the same time,"
                + " both may succeed",
            url("/"));
      }
    }
    return context;
  }

  private synchronized void forget(FileSystem closed) {
    if (files == closed) {
      files = null;
      context = null;
    }
  }
}
