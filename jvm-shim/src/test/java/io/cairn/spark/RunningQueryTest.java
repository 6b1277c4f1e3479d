package io.cairn.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import org.apache.spark.api.java.function.VoidFunction2;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.apache.spark.sql.streaming.Trigger;
import org.junit.jupiter.api.Test;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Traps that only a running query has: the coordinator's reports, progress, and the provider in the
 * offset log.
 */
class RunningQueryTest {
  private static final String PROVIDER = "spark.sql.streaming.stateStore.providerClass";

  private final Map<String, Long> sink = new ConcurrentHashMap<>();

  private StreamingQueryProgress run(SparkSession spark, Path folder) throws Exception {
    StreamingQuery query =
        spark
            .readStream()
            .text(folder.resolve("input").toString())
            .groupBy("value")
            .count()
            .writeStream()
            .outputMode("update")
            .option("checkpointLocation", folder.resolve("checkpoint").toString())
            .foreachBatch(
                (VoidFunction2<Dataset<Row>, Long>)
                    (rows, batch) ->
                        rows.collectAsList()
                            .forEach(row -> sink.put(row.getString(0), row.getLong(1))))
            .trigger(Trigger.AvailableNow())
            .start();
    query.awaitTermination();
    return query.lastProgress();
  }

  private static SparkSession session(StoreFixture fixture) {
    SparkSession.Builder builder =
        SparkSession.builder()
            .master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", fixture.folder.resolve("warehouse").toString())
            .config(PROVIDER, CairnStateStoreProvider.class.getName());
    fixture.settings.forEach(builder::config);
    return builder.getOrCreate();
  }

  /**
   * Trap 5: without a report of each commit every stateful foreachBatch query fails in its first
   * batch. Trap 13: metrics in progress. Trap 15: a restarted query uses the provider in the offset
   * log, not the one of the session.
   */
  @Test
  void trap05And13And15AQueryCommitsReportsAndKeepsItsProvider() throws Exception {
    try (StoreFixture fixture = new StoreFixture()) {
      Files.createDirectories(fixture.folder.resolve("input"));
      Files.writeString(fixture.folder.resolve("input/1.txt"), "a\nb\na\n");
      SparkSession spark = session(fixture);
      try {
        StreamingQueryProgress first = run(spark, fixture.folder);
        assertEquals(Map.of("a", 2L, "b", 1L), sink);
        assertEquals(2, first.stateOperators()[0].numRowsTotal());
        assertTrue(first.stateOperators()[0].customMetrics().get("cairnChangelogBytes") > 0);

        spark
            .conf()
            .set(
                PROVIDER,
                "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider");
        Files.writeString(fixture.folder.resolve("input/2.txt"), "a\nc\n");
        run(spark, fixture.folder);
        assertEquals(Map.of("a", 3L, "b", 1L, "c", 1L), sink);
        assertEquals(Map.of("a", 3L, "b", 1L, "c", 1L), state(spark, fixture.folder));
        // The second batch writes nothing to one of the two partitions, which has "b" alone.
        assertEquals(3, objects(fixture.folder, ".arrow").size());
        assertEquals(List.of(), objects(fixture.folder, ".delta"));
      } finally {
        StateStore.stop();
        spark.stop();
      }
    }
  }

  /**
   * Since 4.2 Spark refuses real-time mode if the session names Cairn, but not if only the
   * checkpoint does. Spark 4.1 refuses every stateful query, unless its list of operators is off.
   */
  @Test
  void realTimeModeIsRefusedBeforeItsFirstBatch() throws Exception {
    try (StoreFixture fixture = new StoreFixture()) {
      SparkSession spark = session(fixture);
      try {
        LowLatencyMemoryStream<String> input =
            LowLatencyMemoryStream.apply(spark, 1, Encoders.STRING());
        input.addData(CollectionConverters.asScala(List.of("a", "b", "a")).toSeq());
        counts(input, fixture, Trigger.AvailableNow()).awaitTermination();
        List<Path> before = logs(fixture.folder);

        spark.conf().set("spark.sql.streaming.realTimeMode.allowlistCheck", "false");
        String named = inRealTime(input, fixture);
        assertTrue(
            named.contains("SQL_CONFIGURATION_NOT_SUPPORTED")
                    && named.contains(PROVIDER)
                    && named.contains("Update or remove them and restart the query")
                || named.contains("[CAIRN_REAL_TIME]"),
            named);

        spark.conf().unset(PROVIDER);
        String text = inRealTime(input, fixture);
        assertTrue(
            text.contains("[CAIRN_REAL_TIME]") && text.contains("Next: use a trigger"), text);
        assertEquals(before, logs(fixture.folder));

        counts(input, fixture, Trigger.AvailableNow()).awaitTermination();
      } finally {
        StateStore.stop();
        spark.stop();
      }
    }
  }

  /** The error of the query in real-time mode, with its causes: of its start, or of its thread. */
  private static String inRealTime(LowLatencyMemoryStream<String> input, StoreFixture fixture) {
    return StoreFixture.chain(
        assertThrows(
            Exception.class,
            () -> counts(input, fixture, Trigger.RealTime("10 seconds")).awaitTermination()));
  }

  private static StreamingQuery counts(
      LowLatencyMemoryStream<String> input, StoreFixture fixture, Trigger trigger)
      throws Exception {
    return input
        .toDF()
        .groupBy("value")
        .count()
        .writeStream()
        .outputMode("update")
        .format("console")
        .option("checkpointLocation", fixture.folder.resolve("checkpoint").toString())
        .trigger(trigger)
        .start();
  }

  /** The entries of the logs of a checkpoint. */
  private static List<Path> logs(Path folder) throws Exception {
    List<Path> entries = new ArrayList<>();
    for (String log : new String[] {"offsets", "commits"}) {
      try (Stream<Path> files = Files.list(folder.resolve("checkpoint").resolve(log))) {
        files.sorted().forEach(entries::add);
      }
    }
    return entries;
  }

  /** Spark's state reader reads the objects beside the providers of the running query. */
  private static Map<String, Long> state(SparkSession spark, Path folder) {
    Map<String, Long> rows = new ConcurrentHashMap<>();
    Dataset<Row> state =
        spark.read().format("statestore").load(folder.resolve("checkpoint").toString());
    for (Row row : state.selectExpr("key.value", "value.count").collectAsList()) {
      rows.put(row.getString(0), row.getLong(1));
    }
    return rows;
  }

  private static List<Path> objects(Path folder, String ending) throws Exception {
    try (Stream<Path> files = Files.walk(folder.resolve("checkpoint/state"))) {
      return files
          .filter(
              file ->
                  file.toString().endsWith(ending)
                      && !file.getFileName().toString().startsWith("."))
          .toList();
    }
  }
}
