package io.cairn.bench;

import java.io.IOException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;

/** Runs one workload with one provider in this JVM and writes its numbers. */
public final class Bench {
  private Bench() {}

  /** See {@link BenchOptions} for the arguments. */
  public static void main(String[] arguments)
      throws IOException, InterruptedException, ExecutionException, TimeoutException {
    BenchOptions options = BenchOptions.parse(arguments);
    SparkConf conf =
        new SparkConf()
            .setMaster("local[2]")
            .setAppName("cairn-bench")
            .set("spark.ui.enabled", "false")
            .set("spark.local.dir", options.folder().resolve("local").toString())
            .set("spark.sql.streaming.numRecentProgressUpdates", "10000")
            .set("spark.sql.shuffle.partitions", Integer.toString(options.partitionCount()))
            .set("spark.sql.streaming.stateStore.providerClass", options.providerClass());
    options.conf().forEach(conf::set);
    Results results = new Results();
    // Providers look for SparkEnv: local directories, memory, cluster settings.
    JavaSparkContext context = new JavaSparkContext(conf);
    try {
      run(options, results);
    } finally {
      context.stop();
    }
    results.write(options.result());
    // At once: a thread of a provider, or a hook that waits for one, could keep the JVM alive.
    Runtime.getRuntime().halt(0);
  }

  private static void run(BenchOptions options, Results results)
      throws IOException, InterruptedException, ExecutionException, TimeoutException {
    ThroughputWorkloads throughput = new ThroughputWorkloads(options, results);
    LatencyWorkloads latency = new LatencyWorkloads(options, results);
    QueryWorkloads queries = new QueryWorkloads(options, results);
    switch (options.workload()) {
      case "bulk_load" -> throughput.bulkLoad();
      case "upserts" -> throughput.upserts(KeyStream.uniform(options.keyCount(), options.seed()));
      case "upserts_zipf" -> throughput.upserts(KeyStream.zipf(options.keyCount(), options.seed()));
      case "deduplication" -> throughput.deduplication();
      case "window_churn" -> throughput.windowChurn();
      case "prefix_scan" -> throughput.prefixScan();
      case "growing_lists" -> throughput.growingLists();
      case "reads" -> throughput.reads();
      case "scan" -> throughput.scan();
      case "parallel_upserts" -> new ParallelWorkload(options, results).run();
      case "residency" -> new ResidencyWorkload(options, results).run();
      case "load" -> new LoadWorkload(options, results).run();
      case "small_commits" -> latency.smallCommits();
      case "empty_batches" -> latency.emptyBatches();
      case "read_latency" -> latency.readLatency();
      case "partitions" -> new PartitionsWorkload(options, results).run();
      case "query_aggregation" -> queries.aggregation();
      case "query_deduplication" -> queries.deduplication();
      case "query_join" -> queries.join();
      case "query_outer_join" -> queries.outerJoin();
      case "query_sessions" -> queries.sessions();
      case "query_groups" -> queries.groups();
      case "query_shufflebench_32_uniform" -> queries.shuffleBench(32, false);
      case "query_shufflebench_32_zipf" -> queries.shuffleBench(32, true);
      case "query_shufflebench_1024_uniform" -> queries.shuffleBench(1024, false);
      case "query_shufflebench_1024_zipf" -> queries.shuffleBench(1024, true);
      case "query_windows" -> queries.windows();
      case "query_deduplication_within" -> queries.deduplicationWithinWatermark();
      case "memory" -> new MemoryWorkload(options, results).run();
      case "worker_start" -> workerStart(options, results);
      default -> throw new IllegalArgumentException("no workload named " + options.workload());
    }
  }

  /** Sets the time from spawning the first worker to its first reply, which Cairn reports. */
  private static void workerStart(BenchOptions options, Results results) {
    try (StoreUnderTest store = new StoreUnderTest(options, 0, "default")) {
      store.fill(1, 1);
      results.set("worker_start_ms", store.customMetric("cairnWorkerStartMs"));
    }
  }
}
