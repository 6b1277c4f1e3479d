package io.cairn.spark.metadata;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Deletes old entries of a log, a hundred per request.
 *
 * <p>Spark purges one entry per batch and log. An entry in here is deleted for this manager. Other
 * processes may still see it. If the process ends, the entries stay; the first purge of the next
 * start lists the log and deletes them.
 *
 * <p>S3 may refuse single names in the answer to a bulk deletion, for example to slow the client
 * down. S3A does not repeat these; they are deleted one by one, which S3A repeats. Thread-safe.
 */
final class DeferredDeletes {
  private static final Logger LOG = LoggerFactory.getLogger(DeferredDeletes.class);
  private static final int COUNT_MAX = 100;

  private final FileSystem files;
  private final Path folder;

  /** INVARIANT: a name stays in here until S3 has deleted it. */
  private final Set<Path> deferred = ConcurrentHashMap.newKeySet();

  /** Names that stayed after an attempt wait for as many new ones as the first attempt did. */
  private int attemptAtCount = COUNT_MAX;

  DeferredDeletes(FileSystem files, Path folder) {
    this.files = files;
    this.folder = folder;
  }

  boolean contains(Path file) {
    return deferred.contains(file);
  }

  /**
   * Deletes an entry of the folder, now or later. A failure is no error: the entry stays deferred.
   *
   * @throws IOException the thread was interrupted
   */
  synchronized void add(Path file) throws IOException {
    deferred.add(file);
    if (deferred.size() < attemptAtCount) {
      return;
    }
    try {
      finish();
    } catch (IOException e) {
      if (Put.isInterrupted(e)) {
        throw e;
      }
      LOG.warn("{} old entries of {} stay until later", deferred.size(), folder, e);
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
    IOException failure = null;
    try (BulkDelete bulk = files.createBulkDelete(folder)) {
      for (int start = 0; start < waiting.size(); start += bulk.pageSize()) {
        List<Path> page = waiting.subList(start, Math.min(start + bulk.pageSize(), waiting.size()));
        Map<Path, String> refused = new LinkedHashMap<>();
        for (Map.Entry<Path, String> one : bulk.bulkDelete(page)) {
          refused.put(files.makeQualified(one.getKey()), one.getValue());
        }
        page.stream().filter(file -> !refused.containsKey(file)).forEach(deferred::remove);
        for (Map.Entry<Path, String> one : refused.entrySet()) {
          // After one failure, each of the others would take as many attempts.
          failure = failure == null ? deleteAlone(one.getKey(), one.getValue()) : failure;
        }
      }
    } finally {
      attemptAtCount = deferred.size() + COUNT_MAX;
    }
    if (failure != null) {
      throw failure;
    }
  }

  /**
   * Deletes an entry that a bulk deletion refused; returns the failure, or null.
   *
   * @throws IOException the thread was interrupted
   */
  private IOException deleteAlone(Path file, String refusal) throws IOException {
    try {
      files.delete(file, false);
    } catch (FileNotFoundException e) {
      LOG.debug("{} is deleted already", file);
    } catch (IOException e) {
      if (Put.isInterrupted(e)) {
        throw e;
      }
      return new IOException(file + " cannot be deleted: " + refusal, e);
    }
    deferred.remove(file);
    return null;
  }
}
