package io.cairn.bench;

import static io.cairn.bench.StoreUnderTest.COLUMN_FAMILY;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStore;

/**
 * Fills a state larger than the provider's bounds, then works on it for a fixed time, and samples
 * the memory once per second. Before a batch ends, the cache also has the writes of the batch.
 *
 * <p>The samples go to {@code <result>.samples}, one JSON object per line: seconds, the cache's
 * accounted bytes, the workers' resident bytes, rows so far. The first sample is taken when the
 * workers have started and their state is empty.
 */
final class MemoryWorkload {
  private static final String CACHE_METRIC = "cairnCacheBytes";
  private static final int SNAPSHOT_EVERY_S = 30;
  private static final int UPSERTS_BETWEEN_PUTS = 4;
  private static final int UPSERTS_BETWEEN_LARGE_BATCHES = 6;
  private static final int UPSERTS_BETWEEN_SCANS = 10;
  private static final int LARGE_BATCH_FACTOR = 10;
  private static final int ROWS_PER_CACHE_SAMPLE = 4096;

  private final BenchOptions options;
  private final Results results;
  private final Rows rows;
  private final StringBuilder samples = new StringBuilder();
  private volatile long cacheBytes;
  private volatile long rowCount; // written by one thread
  private long start;

  MemoryWorkload(BenchOptions options, Results results) {
    this.options = options;
    this.results = results;
    rows = Rows.of(options);
  }

  void run() throws IOException {
    start = System.nanoTime();
    ScheduledExecutorService sampler = Executors.newSingleThreadScheduledExecutor();
    ScheduledExecutorService maintenance = Executors.newSingleThreadScheduledExecutor();
    try (StoreUnderTest store = new StoreUnderTest(options, 0, "default")) {
      upsert(store, new long[0]);
      sample();
      sampler.scheduleAtFixedRate(this::sample, 1, 1, TimeUnit.SECONDS);
      var snapshots =
          maintenance.scheduleWithFixedDelay(
              store::maintain, SNAPSHOT_EVERY_S, SNAPSHOT_EVERY_S, TimeUnit.SECONDS);
      work(store);
      requireAlive(snapshots);
    } finally {
      maintenance.shutdown();
      sampler.shutdown();
      Files.writeString(Path.of(options.result() + ".samples"), samples);
    }
    results.setRate(rowCount, System.nanoTime() - start);
  }

  /**
   * Fills the state, then upserts; at intervals it runs a batch of puts, a batch of ten times the
   * size (the write buffer spills) and a full scan.
   */
  private void work(StoreUnderTest store) {
    KeyStream fresh = KeyStream.sequential(0);
    for (int done = 0; done < options.keyCount(); done += options.batchRows()) {
      put(store, fresh.next(options.batchRows()));
    }
    results.set("fill_seconds", secondsSince(start));
    long filled = System.nanoTime();
    KeyStream keys = KeyStream.uniform(options.keyCount(), options.seed());
    for (int i = 1; secondsSince(filled) < options.durationS(); i++) {
      upsert(store, keys.next(options.batchRows()));
      if (i % UPSERTS_BETWEEN_PUTS == 0) {
        put(store, keys.next(options.batchRows()));
      }
      if (i % UPSERTS_BETWEEN_LARGE_BATCHES == 0) {
        put(store, keys.next(LARGE_BATCH_FACTOR * options.batchRows()));
      }
      if (i % UPSERTS_BETWEEN_SCANS == 0) {
        Answers.require(store.countKeys() >= options.keyCount(), "keys in the state", "too few");
      }
    }
    results.set("work_seconds", secondsSince(filled));
  }

  private static double secondsSince(long nanos) {
    return (System.nanoTime() - nanos) / 1e9;
  }

  private void put(StoreUnderTest store, long[] keys) {
    store.batch(keys, this::put);
  }

  private void put(StateStore opened, long key) {
    opened.put(rows.key(key), rows.value(key), COLUMN_FAMILY);
    if (++rowCount % ROWS_PER_CACHE_SAMPLE == 0) {
      cacheBytes = StoreUnderTest.customMetric(opened.metrics(), CACHE_METRIC);
    }
  }

  private void upsert(StoreUnderTest store, long[] keys) {
    store.batch(
        keys,
        (opened, key) -> {
          UnsafeRow old = opened.get(rows.key(key), COLUMN_FAMILY);
          Answers.require(old != null, "a key of the state", "not found");
          put(opened, key);
        });
  }

  /** Without maintenance, which ends at its first failure, the samples would be too low. */
  private static void requireAlive(Future<?> snapshots) {
    if (snapshots.isDone()) {
      throw new IllegalStateException("no figure: the maintenance ended before the work");
    }
  }

  private void sample() {
    StringJoiner workers = new StringJoiner(", ", "{", "}");
    for (Map.Entry<Long, Long> worker : Processes.workers().entrySet()) {
      workers.add("\"" + worker.getKey() + "\": " + worker.getValue());
    }
    double seconds = secondsSince(start);
    String line =
        String.format(
            Locale.ROOT,
            "{\"seconds\": %.1f, \"cache_bytes\": %d, \"worker_rss_bytes\": %s, \"rss_bytes\": %d,"
                + " \"rows\": %d}%n",
            seconds,
            cacheBytes,
            workers,
            Processes.ownRssBytes(),
            rowCount);
    samples.append(line);
  }
}
