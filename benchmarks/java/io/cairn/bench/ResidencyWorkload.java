package io.cairn.bench;

import static io.cairn.bench.StoreUnderTest.COLUMN_FAMILY;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * Small batches on a state that fits into the cache, before and after one that does not.
 *
 * <p>One batch puts ten times the keys of the state, and the next one removes them, so that the
 * state is as large as before. Three rates: {@code before}, the first small batch after these, and
 * those from the second one on, which is the rate of the workload.
 */
final class ResidencyWorkload {
  private static final int WARM_UP_BATCHES = 20;
  private static final int OVERSIZE_FACTOR = 10;

  private final BenchOptions options;
  private final Results results;
  private final Rows rows;
  private long found;

  ResidencyWorkload(BenchOptions options, Results results) {
    this.options = options;
    this.results = results;
    rows = Rows.of(options);
  }

  void run() {
    try (StoreUnderTest store = new StoreUnderTest(options, 0, "default")) {
      store.fill(options.keyCount(), options.batchRows());
      store.snapshot();
      KeyStream keys = KeyStream.uniform(options.keyCount(), options.seed());
      batches(store, keys, WARM_UP_BATCHES);
      long before = Arrays.stream(batches(store, keys, options.batchCount())).sum();
      long oversized = oversizedBatches(store);
      Usage usage = Usage.ofStoresInUse(options, store);
      long[] after = batches(store, keys, options.batchCount());
      long rowCount = (long) options.batchCount() * options.batchRows();
      usage.end(results, rowCount, store);

      results.set("oversized_and_first_ms", (oversized + after[0]) / 1e6);
      results.set("before_rows_per_s", rowCount * 1e9 / before);
      results.set("first_rows_per_s", options.batchRows() * 1e9 / after[0]);
      long fromSecond = Arrays.stream(after).skip(1).sum();
      results.setRate(rowCount - options.batchRows(), fromSecond);
      long expected = (long) (WARM_UP_BATCHES + 2 * options.batchCount()) * options.batchRows();
      Answers.require(found == expected, "keys found", found);
      long actual = store.countKeys();
      Answers.require(actual == options.keyCount(), "keys in the state", actual);
    }
  }

  private long oversizedBatches(StoreUnderTest store) {
    long[] keys =
        KeyStream.sequential(options.keyCount()).next(OVERSIZE_FACTOR * options.keyCount());
    return store.batch(
            keys, (opened, key) -> opened.put(rows.key(key), rows.value(key), COLUMN_FAMILY))
        + store.batch(keys, (opened, key) -> opened.remove(rows.key(key), COLUMN_FAMILY));
  }

  /** Runs batches of upserts and returns the time of each. */
  private long[] batches(StoreUnderTest store, KeyStream keys, int count) {
    long[] nanos = new long[count];
    for (int i = 0; i < count; i++) {
      nanos[i] =
          store.batch(
              keys.next(options.batchRows()),
              (opened, key) -> {
                UnsafeRow row = rows.key(key);
                UnsafeRow old = opened.get(row, COLUMN_FAMILY);
                found += old == null ? 0 : 1;
                opened.put(row, rows.value(key), COLUMN_FAMILY);
              });
    }
    return nanos;
  }
}
