package io.cairn.spark.metadata;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import org.apache.hadoop.fs.Path;

/**
 * What this process wrote to one of Spark's metadata logs, so that S3 need not be asked about it.
 *
 * <p>The entries of a log are the files in its folder with the names of {@link LogEntry}.
 * Thread-safe.
 *
 * <p>INVARIANT: "present" is said only of entries that this process created, and "absent" only of
 * the batch after the highest one, if this process created that one or the folder was empty. The
 * answer "absent" may be wrong if another driver has just created that entry. This is harmless:
 * Spark creates the entry next, by a conditional PUT, which then fails. After a restart Spark reads
 * entries that another driver may have created since the folder was listed: S3 is asked.
 */
final class LogMemory {
  private static final int CONTENTS_BYTES_MAX = 1 << 20;
  private static final long NONE = -1;
  private static final long UNKNOWN = -2;

  /**
   * After this time without a look at the folder, entries may have been purged by a second driver.
   * Longer than usual triggers, so that their batches list nothing. A second driver takes about as
   * long to start and to run the hundred batches ({@code minBatchesToRetain}) before a purge.
   */
  private static final long LOOKED_MAX_MS = 60_000;

  private final Path folder;

  /** The newest entries with their bytes; a compaction reads the last ten. */
  private final Map<Path, byte[]> contents = new LinkedHashMap<>();

  private int contentsBytes;

  /** The newest batch that this process created. */
  private long newestBatch = NONE;

  /** No higher batch was in the folder when it was listed. */
  private long highestBatch = UNKNOWN;

  /** When the folder was listed last, or got an entry that was the newest one; wall clock. */
  private long lookedMs;

  /**
   * @param wallClockMs now: Spark lists a log before it adds entries to it
   */
  LogMemory(Path folder, long wallClockMs) {
    this.folder = folder;
    this.lookedMs = wallClockMs;
  }

  /** Whether a file has the name and the place of an entry. */
  boolean isEntry(Path file) {
    return batchOf(file).isPresent();
  }

  /** Whether a file exists; empty: S3 must be asked. */
  synchronized Optional<Boolean> exists(Path file) {
    if (contents.containsKey(file)) {
      return Optional.of(true);
    }
    OptionalLong batch = batchOf(file);
    boolean isNext =
        batch.isPresent() && newestBatch == highestBatch && batch.getAsLong() == highestBatch + 1;
    return isNext ? Optional.of(false) : Optional.empty();
  }

  /** The bytes of an entry that this process created, or null if they are not here. */
  synchronized byte[] content(Path file) {
    return contents.get(file);
  }

  /** Whether a file is an entry of a batch before the newest one that this process created. */
  synchronized boolean isOlderThanNewest(Path file) {
    OptionalLong batch = batchOf(file);
    return batch.isPresent() && batch.getAsLong() < newestBatch;
  }

  /**
   * Whether a file is an entry of a batch after the highest one that was listed or that this
   * process created: if it exists, another driver has created it since.
   */
  synchronized boolean isBeyondHighest(Path file) {
    OptionalLong batch = batchOf(file);
    return batch.isPresent() && highestBatch != UNKNOWN && batch.getAsLong() > highestBatch;
  }

  /**
   * Whether a file is an entry of a batch before one that another driver has created since this
   * process created its newest one.
   */
  synchronized boolean isOvertaken(Path file) {
    OptionalLong batch = batchOf(file);
    return batch.isPresent()
        && newestBatch != NONE
        && newestBatch < highestBatch
        && batch.getAsLong() < highestBatch;
  }

  /**
   * Notes all files of the folder; none if there is no folder. An entry that this process created
   * meanwhile may be missing among them.
   */
  synchronized void noteListed(Iterable<Path> files) {
    highestBatch = newestBatch;
    for (Path file : files) {
      highestBatch = Math.max(highestBatch, batchOf(file).orElse(NONE));
    }
  }

  /**
   * Notes a file that this process created.
   *
   * @param content its bytes; null: they are too many
   */
  synchronized void noteCreated(Path file, byte[] content) {
    OptionalLong batch = batchOf(file);
    if (batch.isEmpty()) {
      return;
    }
    newestBatch = Math.max(newestBatch, batch.getAsLong());
    raiseHighest(batch.getAsLong());
    if (content == null || content.length > CONTENTS_BYTES_MAX) {
      return;
    }
    forget(file);
    contents.put(file, content);
    contentsBytes += content.length;
    for (Iterator<byte[]> oldest = contents.values().iterator();
        contentsBytes > CONTENTS_BYTES_MAX; ) {
      contentsBytes -= oldest.next().length;
      oldest.remove();
    }
  }

  /** Notes that at this time no other driver had created an entry after those known here. */
  synchronized void noteLooked(long wallClockMs) {
    lookedMs = wallClockMs;
  }

  /** Whether another driver may have created and purged entries that this process never saw. */
  synchronized boolean isOutdated(long wallClockMs) {
    // A clock that was set back says nothing about the time that has passed.
    return Math.abs(wallClockMs - lookedMs) > LOOKED_MAX_MS;
  }

  /** Notes that a file will be created or replaced by a PUT without a condition. */
  synchronized void noteReplacing(Path file) {
    forget(file);
    batchOf(file).ifPresent(this::raiseHighest);
  }

  /** Notes that a file is deleted, or will be. */
  synchronized void noteDeleted(Path file) {
    forget(file);
    OptionalLong batch = batchOf(file);
    if (batch.isPresent() && batch.getAsLong() >= newestBatch) {
      newestBatch = NONE;
    }
    if (batch.isPresent() && batch.getAsLong() == highestBatch) {
      highestBatch--;
    }
  }

  private void forget(Path file) {
    byte[] content = contents.remove(file);
    contentsBytes -= content == null ? 0 : content.length;
  }

  private void raiseHighest(long batch) {
    if (highestBatch != UNKNOWN) {
      highestBatch = Math.max(highestBatch, batch);
    }
  }

  /** Returns the batch of an entry of this log; empty if the file is none. */
  OptionalLong batchOf(Path file) {
    return folder.equals(file.getParent()) ? LogEntry.batch(file.getName()) : OptionalLong.empty();
  }
}
