package io.cairn.spark.metadata;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Deletes old entries of a log, a hundred per request.
 *
 * <p>Spark purges one entry per batch and log. An entry in here is deleted for this manager. Other
 * processes may still see it. If the process ends, the entries stay; the first purge of the next
 * start lists the log and deletes them. Thread-safe.
 */
final class DeferredDeletes {
  private static final int COUNT_MAX = 100;

  private final FileSystem files;
  private final Path folder;

  /** INVARIANT: a name stays in here until S3 has deleted it. */
  private final Set<Path> deferred = ConcurrentHashMap.newKeySet();

  DeferredDeletes(FileSystem files, Path folder) {
    this.files = files;
    this.folder = folder;
  }

  boolean contains(Path file) {
    return deferred.contains(file);
  }

  /** Deletes an entry of the folder, now or later. */
  void add(Path file) throws IOException {
    deferred.add(file);
    if (deferred.size() >= COUNT_MAX) {
      finish();
    }
  }

  /** Deletes a file now, if its deletion was deferred: its name is about to be used again. */
  void finish(Path file) throws IOException {
    if (contains(file)) {
      finish();
    }
  }

  /**
   * Deletes all deferred entries now.
   *
   * @throws IOException some are not deleted; they stay deferred
   */
  synchronized void finish() throws IOException {
    List<Path> waiting = new ArrayList<>(deferred);
    if (waiting.isEmpty()) {
      return;
    }
    try (BulkDelete bulk = files.createBulkDelete(folder)) {
      for (int start = 0; start < waiting.size(); start += bulk.pageSize()) {
        List<Path> page = waiting.subList(start, Math.min(start + bulk.pageSize(), waiting.size()));
        List<Map.Entry<Path, String>> failures = bulk.bulkDelete(page);
        if (!failures.isEmpty()) {
          throw new IOException(
              failures.get(0).getKey() + " cannot be deleted: " + failures.get(0).getValue());
        }
        page.forEach(deferred::remove);
      }
    }
  }
}
