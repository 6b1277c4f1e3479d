package io.cairn.bench;

import static io.cairn.bench.StoreUnderTest.COLUMN_FAMILY;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * Upserts on several stores at once, one thread per store: with as many stores as cores, work in
 * the background of a provider takes CPU from its tasks.
 *
 * <p>The rate is that of all stores together, until the last thread has ended.
 */
final class ParallelWorkload {
  private static final int WARM_UP_BATCHES = 3;

  private final BenchOptions options;
  private final Results results;

  ParallelWorkload(BenchOptions options, Results results) {
    this.options = options;
    this.results = results;
  }

  void run() throws InterruptedException, ExecutionException {
    StoreUnderTest[] stores = new StoreUnderTest[options.storeCount()];
    List<Upserts> tasks = new ArrayList<>();
    for (int partition = 0; partition < stores.length; partition++) {
      stores[partition] = new StoreUnderTest(options, partition, "default");
      tasks.add(new Upserts(stores[partition], options, options.seed() + partition));
    }
    ExecutorService threads = Executors.newFixedThreadPool(stores.length);
    try {
      onEach(threads, tasks, Upserts::fill);
      onEach(threads, tasks, task -> task.run(WARM_UP_BATCHES));
      Usage usage = Usage.ofStores(options, stores);
      tasks.forEach(task -> task.prepare(options.batchCount()));
      long start = System.nanoTime();
      onEach(threads, tasks, Upserts::runPrepared);
      long nanos = System.nanoTime() - start;
      long rowCount = (long) stores.length * options.batchCount() * options.batchRows();
      usage.end(results, rowCount, stores);
      results.setRate(rowCount, nanos);
      for (Upserts task : tasks) {
        long expected = (long) (WARM_UP_BATCHES + options.batchCount()) * options.batchRows();
        Answers.require(task.found == expected, "keys found", task.found);
      }
    } finally {
      threads.shutdownNow();
      for (StoreUnderTest store : stores) {
        store.close();
      }
    }
  }

  private interface Step {
    void run(Upserts task);
  }

  private static void onEach(ExecutorService threads, List<Upserts> tasks, Step step)
      throws InterruptedException, ExecutionException {
    List<Callable<Void>> calls = new ArrayList<>();
    for (Upserts task : tasks) {
      calls.add(
          () -> {
            step.run(task);
            return null;
          });
    }
    for (Future<Void> call : threads.invokeAll(calls)) {
      call.get();
    }
  }

  /** The batches of one store. */
  private static final class Upserts {
    private final StoreUnderTest store;
    private final BenchOptions options;
    private final Rows rows;
    private final KeyStream keys;
    private final List<long[]> prepared = new ArrayList<>();
    private long found;

    Upserts(StoreUnderTest store, BenchOptions options, long seed) {
      this.store = store;
      this.options = options;
      rows = Rows.of(options);
      keys = KeyStream.uniform(options.keyCount(), seed);
    }

    void fill() {
      store.fill(options.keyCount(), options.batchRows());
      store.snapshot();
    }

    void run(int batches) {
      prepare(batches);
      runPrepared();
    }

    /** Makes the keys, so that this does not count as time of the batches. */
    void prepare(int batches) {
      for (int i = 0; i < batches; i++) {
        prepared.add(keys.next(options.batchRows()));
      }
    }

    void runPrepared() {
      for (long[] batch : prepared) {
        store.batch(
            batch,
            (opened, key) -> {
              UnsafeRow row = rows.key(key);
              UnsafeRow old = opened.get(row, COLUMN_FAMILY);
              found += old == null ? 0 : 1;
              opened.put(row, rows.value(old == null ? 0 : old.getLong(0) + 1), COLUMN_FAMILY);
            });
      }
      prepared.clear();
    }
  }
}
