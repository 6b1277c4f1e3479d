package io.cairn.bench;

import static io.cairn.bench.StoreUnderTest.COLUMN_FAMILY;

import java.util.function.ObjLongConsumer;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;

/** Rows per second of one store on one thread. Every workload checks the rows that it reads. */
final class ThroughputWorkloads {
  private static final int WARM_UP_BATCHES = 3;

  private final BenchOptions options;
  private final Results results;
  private final Rows rows = new Rows();
  private long found;

  ThroughputWorkloads(BenchOptions options, Results results) {
    this.options = options;
    this.results = results;
  }

  /** Puts new keys into an empty store until it holds all keys. */
  void bulkLoad() {
    try (StoreUnderTest warmUp = new StoreUnderTest(options, 1, "default")) {
      warmUp.fill(WARM_UP_BATCHES * options.batchRows(), options.batchRows());
    }
    try (StoreUnderTest store = new StoreUnderTest(options, 0, "default")) {
      int batches = options.keyCount() / options.batchRows();
      measure(
          store,
          KeyStream.sequential(0),
          0,
          batches,
          (s, key) -> s.put(rows.key(key), rows.value(key), COLUMN_FAMILY));
      require(
          store.metrics().numKeys() == options.keyCount(),
          "keys after the load",
          store.metrics().numKeys());
    }
  }

  /** Gets and puts the key of each row, as an aggregation does. */
  void upserts(KeyStream keys) {
    try (StoreUnderTest store = filled()) {
      measure(
          store,
          keys,
          WARM_UP_BATCHES,
          options.batchCount(),
          (s, key) -> {
            UnsafeRow row = rows.key(key);
            UnsafeRow old = s.get(row, COLUMN_FAMILY);
            found += old == null ? 0 : 1;
            s.put(row, rows.value(old == null ? 0 : old.getLong(0) + 1), COLUMN_FAMILY);
          });
      require(found == rowCount(), "keys found", found);
    }
  }

  /** Puts the key of each row if it is new, as dropDuplicates does; half of the keys are new. */
  void deduplication() {
    try (StoreUnderTest store = filled()) {
      KeyStream keys = KeyStream.halfNew(options.keyCount(), options.seed());
      measure(
          store,
          keys,
          WARM_UP_BATCHES,
          options.batchCount(),
          (s, key) -> {
            UnsafeRow row = rows.key(key);
            if (s.keyExists(row, COLUMN_FAMILY)) {
              found++;
            } else {
              s.put(row, rows.value(key), COLUMN_FAMILY);
            }
          });
      long expected = options.keyCount() + rowCount() - found;
      require(
          store.metrics().numKeys() == expected,
          "keys after deduplication",
          store.metrics().numKeys());
    }
  }

  /** Gets the key of each row from a read store. */
  void reads() {
    try (StoreUnderTest store = filled()) {
      KeyStream keys = KeyStream.uniform(options.keyCount(), options.seed());
      long nanos = 0;
      for (int i = -WARM_UP_BATCHES; i < options.batchCount(); i++) {
        long[] batch = keys.next(options.batchRows());
        long start = System.nanoTime();
        ReadStateStore read = store.openToRead();
        for (long key : batch) {
          UnsafeRow value = read.get(rows.key(key), COLUMN_FAMILY);
          found += value != null && value.getLong(0) == key ? 1 : 0;
        }
        read.release();
        nanos += i < 0 ? 0 : System.nanoTime() - start;
      }
      require(found == rowCount(), "keys found", found);
      results.setRate((long) options.batchCount() * options.batchRows(), nanos);
    }
  }

  /** Iterates over the whole store once per batch. */
  void scan() {
    try (StoreUnderTest store = filled()) {
      long nanos = 0;
      for (int i = -WARM_UP_BATCHES; i < options.batchCount(); i++) {
        long start = System.nanoTime();
        StateStore opened = store.open();
        StateStoreIterator<UnsafeRowPair> pairs = opened.iterator(COLUMN_FAMILY);
        while (pairs.hasNext()) {
          UnsafeRowPair pair = pairs.next();
          found += pair.key().getLong(0) == pair.value().getLong(0) ? 1 : 0;
        }
        pairs.close();
        opened.abort();
        nanos += i < 0 ? 0 : System.nanoTime() - start;
      }
      long expected = (long) options.keyCount() * (WARM_UP_BATCHES + options.batchCount());
      require(found == expected, "rows scanned", found);
      results.setRate((long) options.keyCount() * options.batchCount(), nanos);
    }
  }

  private StoreUnderTest filled() {
    StoreUnderTest store = new StoreUnderTest(options, 0, "default");
    store.fill(options.keyCount(), options.batchRows());
    store.snapshot();
    return store;
  }

  private void measure(
      StoreUnderTest store,
      KeyStream keys,
      int warmUps,
      int batches,
      ObjLongConsumer<StateStore> perKey) {
    long nanos = 0;
    for (int i = -warmUps; i < batches; i++) {
      long[] batch = keys.next(options.batchRows());
      long taken = store.batch(batch, perKey);
      nanos += i < 0 ? 0 : taken;
    }
    results.setRate((long) batches * options.batchRows(), nanos);
  }

  /** The number of rows of all batches, including the warm-up. */
  private long rowCount() {
    return (long) (WARM_UP_BATCHES + options.batchCount()) * options.batchRows();
  }

  private static void require(boolean holds, String what, long actual) {
    if (!holds) {
      throw new IllegalStateException(
          "no figure, because of a wrong answer: " + what + ": " + actual);
    }
  }
}
