package io.cairn.spark.metadata;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The files of a checkpoint in a local folder, or in one that is mounted.
 *
 * <p>Spark's own managers start a process of the shell ({@code chmod}, {@code readlink}) for each
 * file; with a large JVM that costs more than the file. Here a file is written, synced, and linked
 * to its name, and the folder is synced. The link fails if the name exists, so of two drivers on
 * one checkpoint the second one fails. It also fails if entries of later batches are there: the
 * other driver has purged the entry of that name. On a file system without links the name is looked
 * for before the file is renamed, as Spark does it, and the log says what that does not exclude. A
 * file system that cannot sync a folder is refused before a file appears.
 *
 * <p>Thread-safe. Methods throw {@code IOException} undeclared, as Spark's own managers do.
 */
public final class LocalCheckpointFiles extends FileSystemBasedCheckpointFileManager {
  private static final Logger LOG = LoggerFactory.getLogger(LocalCheckpointFiles.class);

  /**
   * The classes that serve the scheme {@code file}: Hadoop's own, and Hive's, which Spark's jars
   * register in its place. Hive's is named, because it may be absent. Any other may do anything
   * with a file; its users expect that it is asked.
   */
  private static final Set<String> SERVED_BY =
      Set.of(
          "org.apache.hadoop.fs.LocalFileSystem",
          "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem");

  /** The devices of which the log has said that they have no links. */
  private static final Set<Object> WITHOUT_LINKS = ConcurrentHashMap.newKeySet();

  private final java.nio.file.Path folder;

  private volatile boolean canSync;

  /** As Hadoop gives them, whatever the umask of this process. */
  private final Set<PosixFilePermission> permissions;

  private LocalCheckpointFiles(Path path, Configuration hadoop) {
    super(path, hadoop);
    this.folder = local(path);
    FsPermission ofFiles = FsPermission.getFileDefault().applyUMask(FsPermission.getUMask(hadoop));
    this.permissions = PosixFilePermissions.fromString(ofFiles.toString());
  }

  /**
   * Returns the manager of a folder; empty if the folder is not on a local file system.
   *
   * @throws IOException the file system cannot be used
   */
  public static Optional<LocalCheckpointFiles> of(Path path, Configuration hadoop)
      throws IOException {
    return SERVED_BY.contains(path.getFileSystem(hadoop).getClass().getName())
        ? Optional.of(new LocalCheckpointFiles(path, hadoop))
        : Optional.empty();
  }

  /** Spark asks for the class of the file system, and does not know Hive's. */
  @Override
  public boolean isLocal() {
    return true;
  }

  @Override
  public FSDataOutputStream createTempFile(Path path) {
    java.nio.file.Path file = local(path);
    return Undeclared.call(
        () -> {
          if (!Files.isDirectory(file.getParent())) {
            // Java before 17.0.14 fails for a symbolic link to a folder (JDK-8294193).
            Files.createDirectories(file.getParent());
          }
          if (!canSync) {
            syncFolder(file.getParent());
            canSync = true;
          }
          FileOutputStream opened = new FileOutputStream(file.toFile());
          try {
            Files.setPosixFilePermissions(file, permissions);
          } catch (IOException | UnsupportedOperationException e) {
            LOG.debug("{} keeps its permissions: {}", file, e.toString());
          }
          return new FSDataOutputStream(new Synced(opened), null);
        });
  }

  @Override
  public void renameTempFile(Path temporary, Path path, boolean overwriteIfPossible) {
    java.nio.file.Path from = local(temporary);
    java.nio.file.Path to = local(path);
    Undeclared.call(
        () -> {
          try {
            if (overwriteIfPossible || Files.notExists(to)) {
              // Left by another manager, it would be the checksum of other bytes.
              Files.deleteIfExists(to.resolveSibling("." + path.getName() + ".crc"));
            }
            if (overwriteIfPossible) {
              Files.move(from, to, StandardCopyOption.ATOMIC_MOVE);
            } else {
              link(temporary, path);
            }
          } finally {
            Files.deleteIfExists(from);
          }
          syncFolder(to.getParent());
          if (!overwriteIfPossible) {
            requireNewest(path);
          }
          return null;
        });
  }

  /** Fails if there is an entry of a later batch: the one just created had been purged. */
  private void requireNewest(Path entry) throws IOException {
    OptionalLong batch = LogEntry.batch(entry.getName());
    if (batch.isEmpty() || !folder.equals(local(entry).getParent())) {
      return;
    }
    java.nio.file.Path newest = null;
    long newestBatch = batch.getAsLong();
    try (DirectoryStream<java.nio.file.Path> files = Files.newDirectoryStream(folder)) {
      for (java.nio.file.Path file : files) {
        long found = LogEntry.batch(file.getFileName().toString()).orElse(newestBatch);
        if (found > newestBatch) {
          newest = file;
          newestBatch = found;
        }
      }
    }
    if (newest != null) {
      throw SecondDriver.at(
          new Path(entry.getParent(), newest.getFileName().toString()),
          "at " + Files.getLastModifiedTime(newest),
          null);
    }
  }

  private void link(Path temporary, Path path) throws IOException {
    java.nio.file.Path to = local(path);
    try {
      Files.createLink(to, local(temporary));
    } catch (FileAlreadyExistsException e) {
      if (Files.isSameFile(to, local(temporary))) {
        // On NFS the answer to a first attempt was lost, and the client repeated it.
        return;
      }
      throw SecondDriver.at(path, "at " + Files.getLastModifiedTime(to), e);
    } catch (FileSystemException e) {
      if (!OsErrors.meansNoLinks(e)) {
        throw e;
      }
      renameWithoutLinks(temporary, path, e.getReason());
    } catch (UnsupportedOperationException e) {
      renameWithoutLinks(temporary, path, e.toString());
    }
  }

  /** E.g. on FAT and some network file systems. */
  private void renameWithoutLinks(Path temporary, Path path, String reason) throws IOException {
    if (WITHOUT_LINKS.add(Files.getAttribute(folder, "unix:dev"))) {
      LOG.warn(
          "the file system of {} has no hard links ({}): of two drivers on one checkpoint perhaps"
              + " neither is stopped, and one may replace the other's entries. Next: let one driver"
              + " at a time use this checkpoint, or put it on a file system with hard links or on"
              + " S3",
          folder,
          reason);
    }
    super.renameTempFile(temporary, path, false);
  }

  private static java.nio.file.Path local(Path path) {
    return java.nio.file.Path.of(path.toUri().getPath());
  }

  private static void syncFolder(java.nio.file.Path folder) throws IOException {
    try (FileChannel channel = FileChannel.open(folder, StandardOpenOption.READ)) {
      channel.force(true);
    } catch (IOException e) {
      if (!OsErrors.meansNoSync(e)) {
        throw e;
      }
      throw CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_FILE_SYSTEM",
          "the file system of "
              + folder
              + " cannot sync directories ("
              + e.getMessage()
              + "), so a crash of the machine could lose an entry of Spark's logs",
          "put the checkpoint on another file system, or on S3 or HDFS",
          e);
    }
  }

  /** Bytes that are on the disk when the stream is closed. */
  private static final class Synced extends FilterOutputStream {
    private final FileOutputStream file;
    private boolean isClosed;

    Synced(FileOutputStream file) {
      super(new BufferedOutputStream(file));
      this.file = file;
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
      out.write(bytes, offset, length);
    }

    @Override
    public void close() throws IOException {
      if (isClosed) {
        return;
      }
      isClosed = true;
      try {
        out.flush();
        file.getFD().sync();
      } finally {
        file.close();
      }
    }
  }
}
