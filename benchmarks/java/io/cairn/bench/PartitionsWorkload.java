package io.cairn.bench;

import static io.cairn.bench.StoreUnderTest.COLUMN_FAMILY;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * Many stores in one executor: the four stores of a stream-stream join for each of many partitions,
 * two tasks at a time.
 *
 * <p>The first round creates the stores; then rounds with rows and rounds without rows alternate.
 */
final class PartitionsWorkload {
  private static final int TASK_SLOTS = 2;
  private static final int ROWS_PER_STORE = 100;
  private static final String[] STORES = {
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue"
  };

  private final BenchOptions options;
  private final Results results;

  /** The keys that every store got in the rounds before. */
  private final Set<Long> written = new HashSet<>();

  PartitionsWorkload(BenchOptions options, Results results) {
    this.options = options;
    this.results = results;
  }

  void run() throws InterruptedException, ExecutionException {
    int partitions = options.storeCount() / STORES.length;
    List<List<StoreUnderTest>> tasks = new ArrayList<>();
    ExecutorService slots = Executors.newFixedThreadPool(TASK_SLOTS);
    try {
      long start = System.nanoTime();
      for (int partition = 0; partition < partitions; partition++) {
        List<StoreUnderTest> stores = new ArrayList<>();
        for (String name : STORES) {
          stores.add(new StoreUnderTest(options, partition, name));
        }
        tasks.add(stores);
      }
      round(slots, tasks, 0, ROWS_PER_STORE);
      results.set("first_round_ms", (System.nanoTime() - start) / 1e6);

      StoreUnderTest[] stores = tasks.stream().flatMap(List::stream).toArray(StoreUnderTest[]::new);
      Usage usage = Usage.ofStoresInUse(options, stores);
      long[] full = new long[options.batchCount()];
      long[] empty = new long[options.batchCount()];
      for (int i = 0; i < options.batchCount(); i++) {
        full[i] = round(slots, tasks, i, ROWS_PER_STORE);
        empty[i] = round(slots, tasks, i, 0);
      }
      usage.endWhenIdle(results, (long) options.batchCount() * stores.length * ROWS_PER_STORE);
      ProviderTimes times = new ProviderTimes();
      tasks.forEach(task -> task.forEach(store -> times.add(store.times())));
      times.writeTo(results);
      results.setMillis("round", full);
      results.setMillis("empty_round", empty);
      results.set("stores", stores.length);
      results.set("rss_bytes", Processes.ownRssBytes());
      results.set("worker_rss_bytes", Processes.workerRssBytes());
    } finally {
      slots.shutdownNow();
      tasks.forEach(stores -> stores.forEach(StoreUnderTest::close));
    }
  }

  /**
   * Runs one micro-batch over all partitions and returns its time. All stores get the same keys.
   */
  private long round(
      ExecutorService slots, List<List<StoreUnderTest>> tasks, int seed, int rowCount)
      throws InterruptedException, ExecutionException {
    long[] keys =
        rowCount == 0 ? new long[0] : KeyStream.uniform(10 * ROWS_PER_STORE, seed).next(rowCount);
    long start = System.nanoTime();
    List<Future<?>> running = new ArrayList<>();
    for (List<StoreUnderTest> stores : tasks) {
      running.add(slots.submit(() -> task(stores, keys)));
    }
    for (Future<?> task : running) {
      task.get();
    }
    long nanos = System.nanoTime() - start;
    for (long key : keys) {
      written.add(key);
    }
    return nanos;
  }

  private void task(List<StoreUnderTest> stores, long[] keys) {
    Rows rows = Rows.of(options);
    for (StoreUnderTest store : stores) {
      Set<Long> ofBatch = new HashSet<>();
      store.batch(
          keys,
          (opened, key) -> {
            UnsafeRow row = rows.key(key);
            boolean isFound = opened.get(row, COLUMN_FAMILY) != null;
            boolean isKnown = !ofBatch.add(key) || written.contains(key);
            Answers.require(isFound == isKnown, "whether a store has the key " + key, isFound);
            opened.put(row, rows.value(key), COLUMN_FAMILY);
          });
    }
  }
}
