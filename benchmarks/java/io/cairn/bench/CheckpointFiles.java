package io.cairn.bench;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.RemoteIterator;

/**
 * The files below a checkpoint that were created since a moment.
 *
 * <p>Not counted: a file that was deleted meanwhile, and the checksum files (.crc) that only
 * Hadoop's local file system writes.
 */
final class CheckpointFiles {
  private final URI checkpoint;
  private final Configuration hadoop;
  private final long startMs = System.currentTimeMillis();
  private final Map<String, Found> before;

  private record Found(long bytes, long modifiedMs) {}

  /** Bytes of the created files, and the part of them that belongs to snapshots. */
  record Created(long bytes, long snapshotBytes) {}

  /**
   * Begins at this moment.
   *
   * @param hadoop settings for a checkpoint that is not local
   */
  CheckpointFiles(URI checkpoint, Configuration hadoop) {
    this.checkpoint = checkpoint;
    this.hadoop = hadoop;
    before = isLocal() ? local() : Map.of();
  }

  /** The files that exist now and did not exist, or were others, at the beginning. */
  Created created() {
    long endMs = System.currentTimeMillis();
    long bytes = 0;
    long snapshotBytes = 0;
    for (Map.Entry<String, Found> entry : (isLocal() ? local() : remote()).entrySet()) {
      Found file = entry.getValue();
      // A local file may be older than its name: it may have been linked or copied.
      boolean isCreated =
          isLocal()
              ? !file.equals(before.get(entry.getKey()))
              : file.modifiedMs >= startMs && file.modifiedMs <= endMs;
      if (isCreated) {
        bytes += file.bytes;
        snapshotBytes += isOfSnapshot(entry.getKey()) ? file.bytes : 0;
      }
    }
    return new Created(bytes, snapshotBytes);
  }

  /** Whether a file belongs to a snapshot: of Cairn, of Spark's RocksDB, or of the HDFS-backed. */
  private static boolean isOfSnapshot(String name) {
    return name.contains("/sst/")
        || name.contains("/snapshot/")
        || name.contains("/SSTs/")
        || name.endsWith(".zip")
        || name.endsWith(".snapshot");
  }

  private boolean isLocal() {
    return "file".equals(checkpoint.getScheme());
  }

  private Map<String, Found> local() {
    Map<String, Found> found = new HashMap<>();
    SimpleFileVisitor<Path> visitor =
        new SimpleFileVisitor<>() {
          @Override
          public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) {
            if (!file.toString().endsWith(".crc")) {
              long modifiedMs = attributes.lastModifiedTime().toMillis();
              found.put(file.toString(), new Found(attributes.size(), modifiedMs));
            }
            return FileVisitResult.CONTINUE;
          }

          @Override
          public FileVisitResult visitFileFailed(Path file, IOException e) throws IOException {
            if (e instanceof NoSuchFileException) { // renamed or deleted meanwhile
              return FileVisitResult.CONTINUE;
            }
            throw e;
          }
        };
    try {
      Files.walkFileTree(Path.of(checkpoint), visitor);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return found;
  }

  private Map<String, Found> remote() {
    Map<String, Found> found = new HashMap<>();
    try {
      RemoteIterator<LocatedFileStatus> files =
          FileSystem.get(checkpoint, hadoop)
              .listFiles(new org.apache.hadoop.fs.Path(checkpoint), true);
      while (files.hasNext()) {
        LocatedFileStatus file = files.next();
        Found one = new Found(file.getLen(), file.getModificationTime());
        found.put(file.getPath().toString(), one);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return found;
  }
}
