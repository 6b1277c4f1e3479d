package io.cairn.bench;

import java.net.URI;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Options of one run, given as {@code --name value}; {@code --conf key=value} may be repeated.
 *
 * @param workload name of a workload of {@link Bench}
 * @param providerClass class of the state store provider
 * @param folder empty folder for Spark's temporary files
 * @param checkpoint empty folder for the checkpoint, as a URI
 * @param result the run's numbers are written to this file as JSON
 * @param rows name of the rows of {@link Rows}
 * @param keyCount keys in the state before the measured part
 * @param batchRows rows per batch
 * @param batchCount measured batches
 * @param storeCount number of stores that the workload opens
 * @param partitionCount shuffle partitions of a query
 * @param warmUpBatches batches of a query before the measured ones, after those that fill the state
 * @param durationS duration of workloads that run for a fixed time
 * @param seed seed of the random keys
 * @param conf Spark settings of the session, including those of the provider
 */
record BenchOptions(
    String workload,
    String providerClass,
    Path folder,
    URI checkpoint,
    Path result,
    String rows,
    int keyCount,
    int batchRows,
    int batchCount,
    int storeCount,
    int partitionCount,
    int warmUpBatches,
    int durationS,
    long seed,
    Map<String, String> conf) {

  static BenchOptions parse(String[] arguments) {
    Map<String, String> named = new LinkedHashMap<>();
    Map<String, String> conf = new LinkedHashMap<>();
    for (int i = 0; i + 1 < arguments.length; i += 2) {
      if (arguments[i].equals("--conf")) {
        String[] pair = arguments[i + 1].split("=", 2);
        conf.put(pair[0], pair[1]);
      } else {
        named.put(arguments[i].replaceFirst("^--", ""), arguments[i + 1]);
      }
    }
    Path folder = Path.of(required(named, "folder"));
    String checkpoint = named.get("checkpoint");
    return new BenchOptions(
        required(named, "workload"),
        required(named, "provider-class"),
        folder,
        checkpoint == null ? folder.resolve("checkpoint").toUri() : URI.create(checkpoint),
        Path.of(required(named, "result")),
        named.getOrDefault("rows", "longs"),
        number(named, "key-count", 1_000_000),
        number(named, "batch-rows", 100_000),
        number(named, "batch-count", 6),
        number(named, "store-count", 1),
        number(named, "partition-count", 2),
        number(named, "warm-up-batches", 3),
        number(named, "duration-s", 0),
        number(named, "seed", 1),
        conf);
  }

  /** These options with one more Spark setting. */
  BenchOptions with(String name, String value) {
    Map<String, String> more = new HashMap<>(conf);
    more.put(name, value);
    return new BenchOptions(
        workload,
        providerClass,
        folder,
        checkpoint,
        result,
        rows,
        keyCount,
        batchRows,
        batchCount,
        storeCount,
        partitionCount,
        warmUpBatches,
        durationS,
        seed,
        more);
  }

  private static String required(Map<String, String> named, String name) {
    String value = named.get(name);
    if (value == null) {
      throw new IllegalArgumentException("missing option --" + name);
    }
    return value;
  }

  private static int number(Map<String, String> named, String name, int otherwise) {
    return Integer.parseInt(named.getOrDefault(name, Integer.toString(otherwise)));
  }
}
