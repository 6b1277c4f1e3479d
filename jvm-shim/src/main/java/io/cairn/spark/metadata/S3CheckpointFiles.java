package io.cairn.spark.metadata;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.LongSupplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.functional.FutureIO;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * The files of a checkpoint on S3.
 *
 * <p>A file is written by one PUT when its stream is closed. A file that must not exist is written
 * with {@code If-None-Match}: of two drivers on one checkpoint the second one fails, and the file
 * of the first one stays as it is. A batch of a query costs one PUT for its offsets and one for its
 * commit; {@link LogMemory} answers what Spark asks about these names, and {@link DeferredDeletes}
 * collects the names that Spark purges. A driver that was suspended for long, or that has listed
 * later entries of another driver, lists the folder once more after its next PUT: the other driver
 * may have purged the entry of that name.
 *
 * <p>Thread-safe. Spark's trait declares no exception, so methods throw {@code IOException}
 * undeclared, as Spark's own managers do.
 */
public final class S3CheckpointFiles implements CheckpointFileManager {
  private static final Set<String> SCHEMES = Set.of("s3", "s3a", "s3n");

  private final FileSystem files;
  private final Path root;
  private final LogMemory log;
  private final DeferredDeletes deletes;

  /** Wall clock: others do not go on while a virtual machine is suspended. */
  private final LongSupplier clockMs;

  /** The entry whose existence was asked last: Spark opens it next, and S3A needs its length. */
  private final AtomicReference<FileStatus> lastSeen = new AtomicReference<>();

  S3CheckpointFiles(FileSystem files, Path root, LongSupplier clockMs) {
    this.files = files;
    this.root = root;
    this.clockMs = clockMs;
    this.log = new LogMemory(root, clockMs.getAsLong());
    this.deletes = new DeferredDeletes(files, root);
  }

  /**
   * Returns the manager of a folder; empty if it is not on S3, or if the file system has no
   * conditional PUT ({@code fs.s3a.create.conditional.enabled}).
   *
   * @throws IOException the file system cannot be used
   */
  public static Optional<S3CheckpointFiles> of(Path path, Configuration hadoop) throws IOException {
    String scheme = path.toUri().getScheme();
    if (scheme == null) {
      scheme = FileSystem.getDefaultUri(hadoop).getScheme();
    }
    if (!SCHEMES.contains(scheme.toLowerCase(Locale.ROOT))) {
      return Optional.empty();
    }
    FileSystem files = S3Files.of(path, hadoop);
    Path root = files.makeQualified(path);
    return files.hasPathCapability(root, Put.CONDITIONAL)
        ? Optional.of(new S3CheckpointFiles(files, root, System::currentTimeMillis))
        : Optional.empty();
  }

  @Override
  public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
    Path file = files.makeQualified(path);
    return Undeclared.call(
        () -> {
          deletes.finish(file);
          if (overwriteIfPossible) {
            log.noteReplacing(file); // before the PUT: after a failed one, either may be stored
            return AtomicFile.of(Put.replacing(files, file), content -> {});
          }
          return AtomicFile.of(Put.creating(files, file), content -> noteCreated(file, content));
        });
  }

  private void noteCreated(Path file, byte[] content) throws IOException {
    boolean isOvertaken = log.isOvertaken(file);
    log.noteCreated(file, content);
    OptionalLong batch = log.batchOf(file);
    if (batch.isEmpty()) {
      return;
    }
    long nowMs = clockMs.getAsLong();
    if (isOvertaken || log.isOutdated(nowMs)) {
      requireNewest(batch.getAsLong());
    }
    log.noteLooked(nowMs);
  }

  /** Fails if there is an entry of a later batch: the one just created had been purged. */
  private void requireNewest(long batch) throws IOException {
    FileStatus newest = null;
    long newestBatch = batch;
    for (FileStatus status : files.listStatus(root)) {
      long found = log.batchOf(status.getPath()).orElse(batch);
      if (found > newestBatch) {
        newest = status;
        newestBatch = found;
      }
    }
    if (newest != null) {
      throw SecondDriver.at(newest.getPath(), Put.written(files, newest.getPath()), null);
    }
  }

  @Override
  public FSDataInputStream open(Path path) {
    Path file = files.makeQualified(path);
    byte[] content = log.content(file);
    if (content != null) {
      return new FSDataInputStream(new BytesInput(content));
    }
    FileStatus seen = lastSeen.getAndSet(null);
    return Undeclared.call(
        () -> {
          if (deletes.contains(file)) {
            throw new FileNotFoundException(file + " is deleted");
          }
          return seen != null && seen.getPath().equals(file)
              ? FutureIO.awaitFuture(files.openFile(file).withFileStatus(seen).build())
              : files.open(file);
        });
  }

  @Override
  public FileStatus[] list(Path path, PathFilter filter) {
    return Undeclared.call(
        () -> {
          deletes.finish();
          long nowMs = clockMs.getAsLong();
          List<FileStatus> all = List.of(files.listStatus(path));
          if (files.makeQualified(path).equals(root)) {
            log.noteListed(all.stream().map(FileStatus::getPath).toList());
            log.noteLooked(nowMs);
          }
          return all.stream()
              .filter(status -> filter.accept(status.getPath()))
              .toArray(FileStatus[]::new);
        });
  }

  @Override
  public void mkdirs(Path path) {
    Undeclared.call(() -> files.mkdirs(path, FsPermission.getDirDefault()));
  }

  @Override
  public boolean exists(Path path) {
    Path file = files.makeQualified(path);
    if (deletes.contains(file)) {
      return false;
    }
    return log.exists(file).orElseGet(() -> Undeclared.call(() -> isPresent(file)));
  }

  private boolean isPresent(Path file) throws IOException {
    long nowMs = clockMs.getAsLong();
    try {
      FileStatus status = files.getFileStatus(file);
      // Other files may be replaced between the two calls.
      lastSeen.set(log.isEntry(file) && status.isFile() ? status : null);
      if (log.isBeyondHighest(file)) {
        SecondDriver.warn(file, Put.written(files, file));
      }
      return true;
    } catch (FileNotFoundException e) {
      if (file.equals(root)) {
        log.noteListed(List.of());
        log.noteLooked(nowMs);
      }
      return false;
    }
  }

  @Override
  public void delete(Path path) {
    Path file = files.makeQualified(path);
    boolean isPurge = log.isOlderThanNewest(file);
    log.noteDeleted(file);
    Undeclared.call(
        () -> {
          if (isPurge) {
            deletes.add(file);
          } else {
            deletes.finish();
            deleteNow(file);
          }
          return null;
        });
  }

  private void deleteNow(Path file) throws IOException {
    try {
      files.delete(file, true);
    } catch (FileNotFoundException e) {
      // Spark expects no error for a file that is already deleted.
      return;
    }
  }

  @Override
  public boolean isLocal() {
    return false;
  }

  @Override
  public Path createCheckpointDirectory() {
    mkdirs(root);
    return root;
  }

  @Override
  public void close() {
    Undeclared.call(
        () -> {
          deletes.finish();
          return null;
        });
  }
}
