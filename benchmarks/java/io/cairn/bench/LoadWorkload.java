package io.cairn.bench;

import static io.cairn.bench.StoreUnderTest.COLUMN_FAMILY;

import java.nio.file.Path;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStore;

/**
 * Opens a store at its last version in a provider instance that has nothing of it, until the first
 * get is answered: from the changelogs of all batches, then from a snapshot.
 *
 * <p>A provider of Spark starts with an empty folder anyway; Cairn gets an empty local folder, and
 * with it a worker of its own, which is started before. {@code again} opens the store once more,
 * where the local files of the load before it may be of use. {@code batch} does that again, and
 * also reads and writes the rows of a first batch.
 */
final class LoadWorkload {
  private static final String LOCAL_DIR = "spark.sql.streaming.stateStore.cairn.localDir";
  private static final int OTHER_PARTITION = 1;
  private static final long[] ONE_KEY = {KeyStream.keyOf(0)};

  private final BenchOptions options;
  private final Results results;
  private final Rows rows;

  LoadWorkload(BenchOptions options, Results results) {
    this.options = options;
    this.results = results;
    rows = Rows.of(options);
  }

  void run() {
    try (StoreUnderTest store = new StoreUnderTest(options, 0, "default")) {
      store.fill(options.keyCount(), options.batchRows());
      load(store, "changelogs");
      Usage usage = Usage.ofStores(options, store); // takes the snapshot
      load(store, "snapshot");
      usage.endWhenIdle(results, 0);
    }
  }

  private void load(StoreUnderTest store, String source) {
    Path local = options.folder().resolve("local/load-" + source);
    BenchOptions empty = options.with(LOCAL_DIR, local.toString());
    try (StoreUnderTest starter = new StoreUnderTest(empty, OTHER_PARTITION, source)) {
      starter.fill(1, 1); // starts the worker, if the provider has one
      results.set(source + "_ms", timedLoad(store, empty, ONE_KEY) / 1e6);
      results.set(source + "_again_ms", timedLoad(store, empty, ONE_KEY) / 1e6);
      long[] batch =
          KeyStream.uniform(options.keyCount(), options.seed()).next(options.batchRows());
      results.set(source + "_batch_ms", timedLoad(store, empty, batch) / 1e6);
    }
  }

  /** Opens the store, reads the keys of a batch, and puts those after the first one. */
  private long timedLoad(StoreUnderTest store, BenchOptions fresh, long[] batch) {
    try (StoreUnderTest loaded = store.another(fresh)) {
      long start = System.nanoTime();
      StateStore opened = loaded.open();
      for (int i = 0; i < batch.length; i++) {
        UnsafeRow row = rows.key(batch[i]);
        UnsafeRow value = opened.get(row, COLUMN_FAMILY);
        Answers.require(value != null, "value of a key", value);
        if (i > 0) {
          opened.put(row, rows.value(value.getLong(0) + 1), COLUMN_FAMILY);
        }
      }
      long nanos = System.nanoTime() - start;
      UnsafeRow first = opened.get(rows.key(KeyStream.keyOf(0)), COLUMN_FAMILY);
      boolean isRight = batch.length > 1 || first.getLong(0) == KeyStream.keyOf(0);
      Answers.require(isRight, "value of the first key", first);
      opened.abort();
      long keys = loaded.countKeys();
      Answers.require(keys == options.keyCount(), "keys loaded", keys);
      return nanos;
    }
  }
}
