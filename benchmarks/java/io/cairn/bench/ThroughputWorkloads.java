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
  private static final int ROWS_PER_GROUP = 4;
  private static final int VALUES_PER_LIST = 20;
  private static final int ROWS_PER_LIST_READ = 10;

  /** As Spark's {@code minDeltasForSnapshot}. */
  private static final int BATCHES_PER_SNAPSHOT = 10;

  private final BenchOptions options;
  private final Results results;
  private final Rows rows;
  private long found;

  ThroughputWorkloads(BenchOptions options, Results results) {
    this.options = options;
    this.results = results;
    rows = Rows.of(options);
  }

  /** Puts new keys into an empty store until it holds all keys. */
  void bulkLoad() {
    try (StoreUnderTest warmUp = new StoreUnderTest(options, 1, "default")) {
      warmUp.fill(WARM_UP_BATCHES * options.batchRows(), options.batchRows());
    }
    try (StoreUnderTest store = new StoreUnderTest(options, 0, "default")) {
      int batches = options.keyCount() / options.batchRows();
      KeyStream keys = KeyStream.sequential(0);
      Usage usage = Usage.ofStores(options, store);
      long nanos = run(store, keys, batches, this::put);
      finish(usage, store, nanos, batches, (long) batches * options.batchRows());
      requireKeys(store, (long) batches * options.batchRows());
    }
  }

  /** Gets and puts the key of each row, as an aggregation does. */
  void upserts(KeyStream keys) {
    try (StoreUnderTest store = filled()) {
      measure(store, keys, this::upsert);
      Answers.require(found == rowCount(), "keys found", found);
    }
  }

  private void upsert(StateStore store, long key) {
    UnsafeRow row = rows.key(key);
    UnsafeRow old = store.get(row, COLUMN_FAMILY);
    found += old == null ? 0 : 1;
    store.put(row, rows.value(old == null ? 0 : old.getLong(0) + 1), COLUMN_FAMILY);
  }

  /** Puts the key of each row if it is new, as dropDuplicates does; half of the keys are new. */
  void deduplication() {
    try (StoreUnderTest store = filled()) {
      KeyStream keys = KeyStream.halfNew(options.keyCount(), options.seed());
      run(store, keys, WARM_UP_BATCHES, this::putIfNew);
      long foundBefore = found;
      Usage usage = Usage.ofStores(options, store);
      long nanos = run(store, keys, options.batchCount(), this::putIfNew);
      long written = measuredRows() - (found - foundBefore);
      finish(usage, store, nanos, options.batchCount(), written);
      requireKeys(store, options.keyCount() + rowCount() - found);
    }
  }

  private void putIfNew(StateStore store, long key) {
    UnsafeRow row = rows.key(key);
    if (store.keyExists(row, COLUMN_FAMILY)) {
      found++;
    } else {
      put(store, key);
    }
  }

  /** Puts a new key and removes the oldest key for each row, as windows come and go. */
  void windowChurn() {
    try (StoreUnderTest store = filled()) {
      long[] removed = {0};
      measure(
          store,
          KeyStream.sequential(options.keyCount()),
          (s, key) -> {
            put(s, key);
            s.remove(rows.key(KeyStream.keyOf(removed[0]++)), COLUMN_FAMILY);
          });
      requireKeys(store, options.keyCount());
    }
  }

  /** Scans the group of each row and puts one of its items, as a session window does. */
  void prefixScan() {
    Rows.Grouped grouped = new Rows.Grouped();
    int groups = options.keyCount() / ROWS_PER_GROUP;
    try (StoreUnderTest store = new StoreUnderTest(options, 0, "default", grouped)) {
      KeyStream all = KeyStream.sequential(0);
      int groupsPerBatch = options.batchRows() / ROWS_PER_GROUP;
      run(store, all, groups, groupsPerBatch, (s, group) -> putGroup(s, grouped, group));
      store.snapshot();
      measure(
          store,
          KeyStream.uniform(groups, options.seed()),
          (s, group) -> {
            long sum = 0;
            StateStoreIterator<UnsafeRowPair> items =
                s.prefixScan(grouped.prefix(group), COLUMN_FAMILY);
            while (items.hasNext()) {
              found++;
              sum += items.next().value().getLong(0);
            }
            items.close();
            s.put(
                grouped.key(group, sum & (ROWS_PER_GROUP - 1)), grouped.value(sum), COLUMN_FAMILY);
          });
      Answers.require(found == ROWS_PER_GROUP * rowCount(), "items scanned", found);
    }
  }

  private static void putGroup(StateStore store, Rows.Grouped rows, long group) {
    for (int item = 0; item < ROWS_PER_GROUP; item++) {
      store.put(rows.key(group, item), rows.value(item), COLUMN_FAMILY);
    }
  }

  /**
   * Appends a value to the list of each row, as ListState does; one row of ten also reads its list.
   * The lists have 20 values before the measured part, and a snapshot is due at every tenth batch.
   */
  void growingLists() {
    try (StoreUnderTest store = new StoreUnderTest(options, 0, "default")) {
      for (int values = 0; values < VALUES_PER_LIST; values++) {
        run(store, KeyStream.sequential(0), options.keyCount(), options.batchRows(), this::append);
      }
      KeyStream keys = KeyStream.uniform(options.keyCount(), options.seed());
      run(store, keys, WARM_UP_BATCHES, this::append);
      Usage usage = Usage.ofStores(options, store);
      long[] count = {0};
      long nanos = 0;
      for (int batch = 1; batch <= options.batchCount(); batch++) {
        nanos +=
            run(
                store,
                keys,
                1,
                (s, key) -> {
                  append(s, key);
                  if (count[0]++ % ROWS_PER_LIST_READ == 0) {
                    Answers.require(valuesOf(s, key) > VALUES_PER_LIST, "a list of key", key);
                  }
                });
        if (batch % BATCHES_PER_SNAPSHOT == 0) {
          store.maintain();
        }
      }
      finish(usage, store, nanos, options.batchCount(), measuredRows());
      long values = (long) VALUES_PER_LIST * options.keyCount() + rowCount();
      StateStore opened = store.open();
      for (long key : KeyStream.sequential(0).next(options.keyCount())) {
        values -= valuesOf(opened, key);
      }
      opened.abort();
      Answers.require(values == 0, "values missing in lists", values);
    }
  }

  private void append(StateStore store, long key) {
    store.merge(rows.key(key), rows.value(key), COLUMN_FAMILY);
  }

  private long valuesOf(StateStore store, long key) {
    long count = 0;
    scala.collection.Iterator<UnsafeRow> values =
        store.valuesIterator(rows.key(key), COLUMN_FAMILY);
    while (values.hasNext()) {
      count += values.next().getLong(0) == key ? 1 : 0;
    }
    return count;
  }

  /** Gets the key of each row from a read store. */
  void reads() {
    try (StoreUnderTest store = filled()) {
      KeyStream keys = KeyStream.uniform(options.keyCount(), options.seed());
      readBatches(store, keys, WARM_UP_BATCHES);
      Usage usage = Usage.ofStores(options, store);
      long nanos = readBatches(store, keys, options.batchCount());
      usage.endWhenIdle(results, 0);
      results.setRate(measuredRows(), nanos);
      Answers.require(found == rowCount(), "keys found", found);
    }
  }

  private long readBatches(StoreUnderTest store, KeyStream keys, int batches) {
    long nanos = 0;
    for (int i = 0; i < batches; i++) {
      long[] batch = keys.next(options.batchRows());
      long start = System.nanoTime();
      ReadStateStore read = store.openToRead();
      for (long key : batch) {
        UnsafeRow value = read.get(rows.key(key), COLUMN_FAMILY);
        found += value != null && value.getLong(0) == key ? 1 : 0;
      }
      read.release();
      nanos += System.nanoTime() - start;
    }
    return nanos;
  }

  /** Iterates over the whole store once per batch. */
  void scan() {
    try (StoreUnderTest store = filled()) {
      scans(store, WARM_UP_BATCHES);
      Usage usage = Usage.ofStores(options, store);
      long nanos = scans(store, options.batchCount());
      usage.endWhenIdle(results, 0);
      results.setRate((long) options.keyCount() * options.batchCount(), nanos);
      long expected = (long) options.keyCount() * (WARM_UP_BATCHES + options.batchCount());
      Answers.require(found == expected, "rows scanned", found);
    }
  }

  private long scans(StoreUnderTest store, int count) {
    long nanos = 0;
    for (int i = 0; i < count; i++) {
      long start = System.nanoTime();
      StateStore opened = store.open();
      StateStoreIterator<UnsafeRowPair> pairs = opened.iterator(COLUMN_FAMILY);
      while (pairs.hasNext()) {
        UnsafeRowPair pair = pairs.next();
        found += pair.key().getLong(0) == pair.value().getLong(0) ? 1 : 0;
      }
      pairs.close();
      opened.abort();
      nanos += System.nanoTime() - start;
    }
    return nanos;
  }

  private void put(StateStore store, long key) {
    store.put(rows.key(key), rows.value(key), COLUMN_FAMILY);
  }

  private StoreUnderTest filled() {
    StoreUnderTest store = new StoreUnderTest(options, 0, "default");
    store.fill(options.keyCount(), options.batchRows());
    store.snapshot();
    return store;
  }

  /** Runs the warm-up and the measured batches, in which every row is written once. */
  private void measure(StoreUnderTest store, KeyStream keys, ObjLongConsumer<StateStore> perKey) {
    run(store, keys, WARM_UP_BATCHES, perKey);
    Usage usage = Usage.ofStores(options, store);
    long nanos = run(store, keys, options.batchCount(), perKey);
    finish(usage, store, nanos, options.batchCount(), measuredRows());
  }

  private void finish(
      Usage usage, StoreUnderTest store, long nanos, int batches, long writtenRows) {
    usage.end(results, writtenRows, store);
    results.setRate((long) batches * options.batchRows(), nanos);
  }

  /** Runs batches and returns their time; the making of the keys does not count. */
  private long run(
      StoreUnderTest store, KeyStream keys, int batches, ObjLongConsumer<StateStore> perKey) {
    return run(store, keys, (long) batches * options.batchRows(), options.batchRows(), perKey);
  }

  private static long run(
      StoreUnderTest store,
      KeyStream keys,
      long count,
      int batchRows,
      ObjLongConsumer<StateStore> perKey) {
    long nanos = 0;
    for (long done = 0; done < count; done += batchRows) {
      nanos += store.batch(keys.next((int) Math.min(batchRows, count - done)), perKey);
    }
    return nanos;
  }

  private void requireKeys(StoreUnderTest store, long expected) {
    long actual = store.countKeys();
    Answers.require(actual == expected, "keys in the state, not " + expected, actual);
  }

  private long measuredRows() {
    return (long) options.batchCount() * options.batchRows();
  }

  /** The number of rows of all batches, including the warm-up. */
  private long rowCount() {
    return (long) (WARM_UP_BATCHES + options.batchCount()) * options.batchRows();
  }
}
