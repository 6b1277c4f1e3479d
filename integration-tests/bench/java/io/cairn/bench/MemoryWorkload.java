package io.cairn.bench;

import static io.cairn.bench.StoreUnderTest.COLUMN_FAMILY;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * Works on a state larger than the provider's bounds for a time, and samples once a second what it
 * holds.
 *
 * <p>Beside the result stands {@code <result>.samples}: one JSON object a line with seconds, the
 * tier's accounted bytes, the workers' resident bytes, rows so far. The first line is taken when
 * the workers have started and hold nothing.
 */
final class MemoryWorkload {
  private static final String TIER_METRIC = "cairnTierBytes";
  private static final int UPSERTS_BETWEEN_SCANS = 100;
  private static final int BATCHES_BETWEEN_SNAPSHOTS = 50;

  private final BenchOptions options;
  private final Results results;
  private final Rows rows = new Rows();
  private final StringBuilder samples = new StringBuilder();
  private volatile long tierBytes;
  private volatile long rowCount;
  private long start;

  MemoryWorkload(BenchOptions options, Results results) {
    this.options = options;
    this.results = results;
  }

  void run() throws IOException {
    start = System.nanoTime();
    ScheduledExecutorService sampler = Executors.newSingleThreadScheduledExecutor();
    try (StoreUnderTest store = new StoreUnderTest(options, 0, "default")) {
      batch(store, new long[0]);
      sample();
      sampler.scheduleAtFixedRate(this::sample, 1, 1, TimeUnit.SECONDS);
      work(store);
    } finally {
      sampler.shutdown();
    }
    results.setRate(rowCount, System.nanoTime() - start);
    Files.writeString(Path.of(options.result() + ".samples"), samples);
  }

  private void work(StoreUnderTest store) {
    KeyStream fresh = KeyStream.sequential(0);
    for (int done = 0; done < options.keyCount() && !isOver(); done += options.batchRows()) {
      batch(store, fresh.next(options.batchRows()));
    }
    KeyStream keys = KeyStream.uniform(options.keyCount(), options.seed());
    for (int i = 1; !isOver(); i++) {
      batch(store, keys.next(options.batchRows()));
      if (i % BATCHES_BETWEEN_SNAPSHOTS == 0) {
        store.snapshot();
      }
      if (i % UPSERTS_BETWEEN_SCANS == 0) {
        scan(store);
      }
    }
  }

  private boolean isOver() {
    return System.nanoTime() - start > TimeUnit.SECONDS.toNanos(options.durationS());
  }

  private void batch(StoreUnderTest store, long[] keys) {
    store.batch(
        keys,
        (opened, key) -> {
          UnsafeRow row = rows.key(key);
          opened.get(row, COLUMN_FAMILY);
          opened.put(row, rows.value(key), COLUMN_FAMILY);
        });
    rowCount += keys.length;
    tierBytes = store.customMetric(TIER_METRIC);
  }

  private static void scan(StoreUnderTest store) {
    var opened = store.open();
    var pairs = opened.iterator(COLUMN_FAMILY);
    while (pairs.hasNext()) {
      pairs.next();
    }
    pairs.close();
    opened.abort();
  }

  private void sample() {
    StringJoiner workers = new StringJoiner(", ", "{", "}");
    for (Map.Entry<Long, Long> worker : Processes.workers().entrySet()) {
      workers.add("\"" + worker.getKey() + "\": " + worker.getValue());
    }
    double seconds = (System.nanoTime() - start) / 1e9;
    String line =
        String.format(
            Locale.ROOT,
            "{\"seconds\": %.1f, \"tier_bytes\": %d, \"worker_rss_bytes\": %s, \"rss_bytes\": %d,"
                + " \"rows\": %d}%n",
            seconds,
            tierBytes,
            workers,
            Processes.ownRssBytes(),
            rowCount);
    samples.append(line);
  }
}
