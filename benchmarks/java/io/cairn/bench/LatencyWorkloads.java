package io.cairn.bench;

import static io.cairn.bench.StoreUnderTest.COLUMN_FAMILY;

import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStore;

/** Times of small batches, and of single reads while the provider does other work. */
final class LatencyWorkloads {
  private static final int SMALL_BATCH_ROWS = 1_000;
  private static final int WARM_UP_BATCHES = 20;
  private static final int QUIET_READS = 200_000;
  private static final int READS_AFTER_COMMIT = 20_000;
  private static final int BATCHES_PER_SNAPSHOT = 10; // Spark's minDeltasForSnapshot
  private static final int MOST_SAMPLES = 5_000_000;

  private final BenchOptions options;
  private final Results results;
  private final Rows rows;

  LatencyWorkloads(BenchOptions options, Results results) {
    this.options = options;
    this.results = results;
    rows = Rows.of(options);
  }

  /** Measures a batch of a thousand puts on a large state, and its {@code commit()} alone. */
  void smallCommits() {
    try (StoreUnderTest store = filled()) {
      KeyStream keys = KeyStream.uniform(options.keyCount(), options.seed());
      smallBatches(store, keys, new long[WARM_UP_BATCHES], new long[WARM_UP_BATCHES]);
      long[] batches = new long[options.batchCount()];
      long[] commits = new long[options.batchCount()];
      Usage usage = Usage.ofStores(options, store);
      smallBatches(store, keys, batches, commits);
      usage.end(results, (long) SMALL_BATCH_ROWS * batches.length, store);
      requireAllKeys(store);
      results.setMillis("batch", batches);
      results.setMillis("commit", commits);
    }
  }

  /** Runs as many batches as there are places for their times and for those of their commits. */
  private void smallBatches(StoreUnderTest store, KeyStream keys, long[] batches, long[] commits) {
    for (int i = 0; i < batches.length; i++) {
      long[] batch = keys.next(SMALL_BATCH_ROWS);
      long start = System.nanoTime();
      StateStore opened = store.open();
      for (long key : batch) {
        opened.put(rows.key(key), rows.value(key), COLUMN_FAMILY);
      }
      commits[i] = store.commit(opened);
      batches[i] = System.nanoTime() - start;
    }
  }

  /** Measures batches that change nothing: open and commit. */
  void emptyBatches() {
    try (StoreUnderTest store = filled()) {
      emptyBatches(store, new long[WARM_UP_BATCHES]);
      long[] batches = new long[options.batchCount()];
      Usage usage = Usage.ofStores(options, store);
      emptyBatches(store, batches);
      usage.end(results, 0, store);
      requireAllKeys(store);
      results.setMillis("batch", batches);
    }
  }

  private static void emptyBatches(StoreUnderTest store, long[] batches) {
    for (int i = 0; i < batches.length; i++) {
      batches[i] = store.batch(new long[0], (opened, key) -> {});
    }
  }

  /**
   * Measures single gets: alone, just after a commit, during a snapshot, during a load. The faster
   * provider makes more of them meanwhile, so CPU and bytes are not measured.
   */
  void readLatency() {
    try (StoreUnderTest store = filled()) {
      KeyStream keys = KeyStream.uniform(options.keyCount(), options.seed());
      timedReads(store, keys.next(QUIET_READS)); // warms up the reading code
      store.snapshot();
      Processes.awaitIdle();
      results.setMicros("quiet", timedReads(store, keys.next(QUIET_READS)));

      Samples afterCommit = new Samples();
      Samples snapshot = new Samples();
      for (int i = 0; i < options.batchCount(); i++) {
        upsert(store, keys.next(options.batchRows()));
        afterCommit.add(timedReads(store, keys.next(READS_AFTER_COMMIT)));
        emptyBatches(store, new long[BATCHES_PER_SNAPSHOT - 1]); // a snapshot is due then
        snapshot.add(readsDuring(store, keys, store::maintain));
      }
      results.setMicros("after_commit", afterCommit.all());
      results.setMicros("during_snapshot", snapshot.all());

      Samples opening = new Samples();
      for (int i = 0; i < options.batchCount(); i++) {
        opening.add(readsDuring(store, keys, () -> openAnother(store)));
      }
      results.setMicros("during_open", opening.all());
    }
  }

  private StoreUnderTest filled() {
    StoreUnderTest store = new StoreUnderTest(options, 0, "default");
    store.fill(options.keyCount(), options.batchRows());
    store.snapshot();
    return store;
  }

  private void requireAllKeys(StoreUnderTest store) {
    long actual = store.countKeys();
    Answers.require(actual == options.keyCount(), "keys in the state", actual);
  }

  private void upsert(StoreUnderTest store, long[] keys) {
    store.batch(
        keys,
        (opened, key) -> {
          UnsafeRow row = rows.key(key);
          opened.get(row, COLUMN_FAMILY);
          opened.put(row, rows.value(key), COLUMN_FAMILY);
        });
  }

  /** Loads the same version in another provider instance, and reads one key to check it. */
  private void openAnother(StoreUnderTest store) {
    try (StoreUnderTest other = store.another(options)) {
      StateStore opened = other.open();
      requirePresent(opened.get(Rows.of(options).key(KeyStream.keyOf(0)), COLUMN_FAMILY));
      opened.abort();
    }
  }

  private long[] readsDuring(StoreUnderTest store, KeyStream keys, Runnable work) {
    Samples samples = new Samples();
    StateStore opened = store.open();
    CompletableFuture<Void> running = CompletableFuture.runAsync(work);
    while (!running.isDone() && samples.count < MOST_SAMPLES) {
      samples.add(timedReads(opened, keys.next(100)));
    }
    running.join();
    opened.abort();
    return samples.all();
  }

  private long[] timedReads(StoreUnderTest store, long[] keys) {
    StateStore opened = store.open();
    long[] nanos = timedReads(opened, keys);
    opened.abort();
    return nanos;
  }

  private long[] timedReads(StateStore opened, long[] keys) {
    long[] nanos = new long[keys.length];
    for (int i = 0; i < keys.length; i++) {
      UnsafeRow row = rows.key(keys[i]);
      long start = System.nanoTime();
      UnsafeRow value = opened.get(row, COLUMN_FAMILY);
      nanos[i] = System.nanoTime() - start;
      requirePresent(value);
    }
    return nanos;
  }

  private static void requirePresent(UnsafeRow value) {
    Answers.require(value != null, "a key of the state", "not found");
  }

  /** A growing array of longs: without boxing, the measurement creates little garbage. */
  private static final class Samples {
    private long[] values = new long[1 << 16];
    private int count;

    void add(long[] more) {
      if (count + more.length > values.length) {
        values = Arrays.copyOf(values, Math.max(2 * values.length, count + more.length));
      }
      System.arraycopy(more, 0, values, count, more.length);
      count += more.length;
    }

    long[] all() {
      return Arrays.copyOf(values, count);
    }
  }
}
