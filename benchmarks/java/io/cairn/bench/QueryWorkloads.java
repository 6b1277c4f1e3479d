package io.cairn.bench;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.count;
import static org.apache.spark.sql.functions.expr;
import static org.apache.spark.sql.functions.lit;
import static org.apache.spark.sql.functions.pmod;
import static org.apache.spark.sql.functions.session_window;
import static org.apache.spark.sql.functions.sum;
import static org.apache.spark.sql.functions.when;
import static org.apache.spark.sql.functions.window;
import static org.apache.spark.sql.functions.xxhash64;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StateOperatorProgress;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import scala.Tuple2;

/**
 * Whole streaming queries: source, shuffle, state, commit and Spark's metadata, as fast as they go.
 *
 * <p>The source makes rows from their numbers, {@code batchRows} per batch, with the event time of
 * the batch: 10 s after the batch before. The sink drops all rows. The rate is that of the measured
 * batches, from trigger to commit.
 */
final class QueryWorkloads {
  private static final long POLL_MS = 5;
  private static final long BATCH_LIMIT_MS = 600_000;
  private static final String ADVANCE = "10 seconds";
  private static final long ADVANCE_MS = 10_000;
  private static final String COUNTS_KEYS =
      "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows";

  private final BenchOptions options;
  private final Results results;

  QueryWorkloads(BenchOptions options, Results results) {
    this.options = options;
    this.results = results;
  }

  /** Sums by key. The first batches insert all keys; later rows have any key. */
  void aggregation() throws InterruptedException, TimeoutException {
    Dataset<Row> frame = rows().groupBy(keyOfMany().as("key")).agg(sum("value"), count("*"));
    measure(frame, "update", batchesOf(options.keyCount()), options.keyCount());
  }

  /** The same sums, which a function keeps in the state of its group. */
  void groups() throws InterruptedException, TimeoutException {
    FlatMapGroupsWithStateFunction<Long, Tuple2<Long, Long>, Long, Long> add =
        (key, values, state) -> {
          long total = state.getOption().getOrElse(() -> 0L);
          while (values.hasNext()) {
            total += values.next()._2();
          }
          state.update(total);
          return List.of(total).iterator();
        };
    Dataset<Row> frame =
        rows()
            .select(keyOfMany().as("_1"), col("value").as("_2"))
            .as(Encoders.tuple(Encoders.LONG(), Encoders.LONG()))
            .groupByKey((MapFunction<Tuple2<Long, Long>, Long>) Tuple2::_1, Encoders.LONG())
            .flatMapGroupsWithState(
                add,
                OutputMode.Update(),
                Encoders.LONG(),
                Encoders.LONG(),
                GroupStateTimeout.NoTimeout())
            .toDF();
    measure(frame, "update", batchesOf(options.keyCount()), options.keyCount());
  }

  /** The consumers of {@link ShuffleBench}. */
  void shuffleBench(int stateBytes, boolean isZipf) throws InterruptedException, TimeoutException {
    Dataset<Row> frame = ShuffleBench.query(rows(), options.keyCount(), stateBytes, isZipf);
    measure(frame, "update", batchesOf(options.keyCount()), options.keyCount());
  }

  /** A key of each row: the first rows have all keys one by one, later ones any. */
  private Column keyOfMany() {
    Column number = col("value");
    return when(number.lt(options.keyCount()), number).otherwise(anyOf(lit(options.keyCount())));
  }

  /** Drops rows with known keys. Of even numbers the key is new, of odd numbers it is known. */
  void deduplication() throws InterruptedException, TimeoutException {
    Column number = col("value");
    Column known = anyOf(expr("greatest(value div 2, 1)")).multiply(2);
    Column key = when(number.mod(2).equalTo(0), number).otherwise(known);
    Dataset<Row> frame = rows().select(key.as("key")).dropDuplicates("key");
    int fillBatches = batchesOf(2 * options.keyCount());
    long batches = fillBatches + options.warmUpBatches() + options.batchCount();
    measure(frame, "append", fillBatches, batches * options.batchRows() / 2);
  }

  /** Joins each row with the row of the other stream that has its key, one batch earlier. */
  void join() throws InterruptedException, TimeoutException {
    join(lit(true), "inner");
  }

  /** As {@link #join}, with only half of the right rows: the other left rows match none. */
  void outerJoin() throws InterruptedException, TimeoutException {
    join(col("value").mod(2).equalTo(0), "left_outer");
  }

  private void join(Column isRight, String type) throws InterruptedException, TimeoutException {
    Dataset<Row> left = rows().withWatermark("timestamp", ADVANCE).alias("l");
    Column earlier = col("value").minus(options.batchRows() / 2);
    Dataset<Row> right =
        rows()
            .where(isRight)
            .withWatermark("timestamp", ADVANCE)
            .select(earlier.as("value"), col("timestamp"))
            .alias("r");
    Column isNear =
        expr("r.timestamp >= l.timestamp AND r.timestamp <= l.timestamp + interval 20 seconds");
    Column isMatch = col("l.value").equalTo(col("r.value")).and(isNear);
    measure(left.join(right, isMatch, type), "append", options.warmUpBatches(), -1);
  }

  /** Counts the rows of each key's session; a session ends 15 s after its last row. */
  void sessions() throws InterruptedException, TimeoutException {
    Dataset<Row> frame =
        rows()
            .withWatermark("timestamp", ADVANCE)
            .select(col("timestamp"), anyOf(lit(options.keyCount())).as("key"))
            .groupBy(session_window(col("timestamp"), "15 seconds"), col("key"))
            .agg(count("*"));
    measure(frame, "append", options.warmUpBatches(), -1);
  }

  /** Counts the rows of each key in windows of one batch; a batch removes one of six windows. */
  void windows() throws InterruptedException, TimeoutException {
    Dataset<Row> frame =
        rows()
            .withWatermark("timestamp", "40 seconds")
            .select(col("timestamp"), anyOf(lit(options.keyCount())).as("key"))
            .groupBy(window(col("timestamp"), ADVANCE), col("key"))
            .agg(count("*"));
    measure(frame, "append", options.warmUpBatches(), -1);
  }

  /**
   * Drops rows with a key of the batch before. Of even numbers the key is new, and removed six
   * batches later: Spark keeps a key for twice the delay of the watermark.
   */
  void deduplicationWithinWatermark() throws InterruptedException, TimeoutException {
    Column number = col("value");
    Column known = number.minus(options.batchRows() + 1);
    Column key = when(number.mod(2).equalTo(0), number).otherwise(known);
    Dataset<Row> frame =
        rows()
            .withWatermark("timestamp", "25 seconds")
            .select(col("timestamp"), key.as("key"))
            .dropDuplicatesWithinWatermark("key");
    measure(frame, "append", options.warmUpBatches(), -1);
  }

  /** The number of batches that have {@code rowCount} rows together, or more. */
  private int batchesOf(int rowCount) {
    return (rowCount + options.batchRows() - 1) / options.batchRows();
  }

  /** A number below {@code bound} that the row's number determines. */
  private static Column anyOf(Column bound) {
    return pmod(xxhash64(col("value")), bound);
  }

  private Dataset<Row> rows() {
    boolean isJoin = options.workload().endsWith("join"); // two streams share the batch
    return SparkSession.builder()
        .getOrCreate()
        .readStream()
        .format("rate-micro-batch")
        .option("rowsPerBatch", options.batchRows() / (isJoin ? 2 : 1))
        .option("numPartitions", 2)
        .option("startTimestamp", 0)
        .option("advanceMillisPerBatch", ADVANCE_MS)
        .load();
  }

  /**
   * Runs the query and measures its last batches. With no batches to measure, it only fills the
   * state; another run on the same checkpoint then continues after the fill.
   *
   * @param fillBatches batches before the warm-up
   * @param expectedKeys keys of the state in the end; -1 if they are not checked
   */
  private void measure(Dataset<Row> frame, String mode, int fillBatches, long expectedKeys)
      throws InterruptedException, TimeoutException {
    StreamingQuery query =
        frame
            .writeStream()
            .format("noop")
            .outputMode(mode)
            .option("checkpointLocation", new Path(options.checkpoint()).toString())
            .start();
    try {
      if (options.batchCount() == 0) {
        await(query, fillBatches - 1);
        return;
      }
      long first = fillBatches + options.warmUpBatches();
      await(query, first - 1);
      Usage usage = Usage.ofQuery(options);
      await(query, first + options.batchCount() - 1);
      List<StreamingQueryProgress> measured = batches(query, first, options.batchCount());
      usage.end(results, measured.stream().mapToLong(QueryWorkloads::writtenRows).sum());
      setNumbers(measured);
      requireKeys(measured.get(measured.size() - 1), expectedKeys);
    } finally {
      query.stop();
    }
  }

  /** Waits for the end of a batch. */
  private static void await(StreamingQuery query, long batch) throws InterruptedException {
    long deadline = System.currentTimeMillis() + BATCH_LIMIT_MS;
    long last = -1;
    while (last < batch) {
      Thread.sleep(POLL_MS);
      if (!query.isActive()) {
        throw new IllegalStateException("the query ended", query.exception().getOrElse(() -> null));
      }
      StreamingQueryProgress progress = query.lastProgress();
      if (progress != null && progress.batchId() > last) {
        last = progress.batchId();
        deadline = System.currentTimeMillis() + BATCH_LIMIT_MS;
      }
      if (System.currentTimeMillis() > deadline) {
        throw new IllegalStateException("batch " + (last + 1) + " did not end");
      }
    }
  }

  private static List<StreamingQueryProgress> batches(StreamingQuery query, long first, int count) {
    List<StreamingQueryProgress> found = new ArrayList<>();
    for (StreamingQueryProgress progress : query.recentProgress()) {
      if (progress.batchId() >= first && progress.batchId() < first + count) {
        found.add(progress);
      }
    }
    Answers.require(found.size() == count, "batches with a progress", found.size());
    return found;
  }

  private void setNumbers(List<StreamingQueryProgress> measured) {
    long[] nanos =
        measured.stream()
            .mapToLong(progress -> progress.durationMs().get("triggerExecution") * 1_000_000)
            .toArray();
    results.setMillis("batch", nanos);
    long rowCount = measured.stream().mapToLong(StreamingQueryProgress::numInputRows).sum();
    results.setRate(rowCount, Arrays.stream(nanos).sum());
    ProviderTimes times = new ProviderTimes();
    Map<String, List<Long>> phases = new TreeMap<>();
    for (StreamingQueryProgress progress : measured) {
      times.add(customMetrics(progress));
      progress
          .durationMs()
          .forEach((name, ms) -> phases.computeIfAbsent(name, key -> new ArrayList<>()).add(ms));
    }
    times.writeTo(results);
    phases.remove("triggerExecution"); // the batch itself
    phases.forEach((name, values) -> results.set("spark_" + name + "_ms", median(values)));
  }

  private static double median(List<Long> values) {
    List<Long> sorted = values.stream().sorted().toList();
    return (sorted.get((sorted.size() - 1) / 2) + sorted.get(sorted.size() / 2)) / 2.0;
  }

  /** The metrics of the operators, which Spark has summed over the partitions. */
  private static Map<String, Long> customMetrics(StreamingQueryProgress progress) {
    Map<String, Long> sums = new HashMap<>();
    for (StateOperatorProgress operator : progress.stateOperators()) {
      operator.customMetrics().forEach((name, value) -> sums.merge(name, value, Long::sum));
    }
    return sums;
  }

  private static long writtenRows(StreamingQueryProgress progress) {
    return Arrays.stream(progress.stateOperators())
        .mapToLong(StateOperatorProgress::numRowsUpdated)
        .sum();
  }

  private void requireKeys(StreamingQueryProgress last, long expected) {
    boolean isNothing = options.providerClass().equals(NothingStateStoreProvider.class.getName());
    boolean isCounted = !"false".equals(options.conf().get(COUNTS_KEYS));
    if (isNothing || !isCounted) {
      return;
    }
    long actual =
        Arrays.stream(last.stateOperators()).mapToLong(StateOperatorProgress::numRowsTotal).sum();
    boolean isRight = expected < 0 ? actual > 0 : actual == expected;
    Answers.require(isRight, "keys in the state, not " + expected, actual);
  }
}
