package io.cairn.spark.settings;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.util.Utils;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Settings of one store as the shim uses them; it passes the engine's settings on.
 *
 * <p>All faults in a user's settings are found here, in {@code init}, before anything is started or
 * written. Names, types and ranges: {@code settings.json}.
 */
public final class StoreSettings {
  private static final String TRACK_ROWS =
      "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows";

  /** What Spark calls the driver among its executors. */
  private static final String DRIVER = "driver";

  private static final long MIB = 1 << 20;
  private static final long DEFAULT_MEMORY = 256 << 20;
  private static final long DEFAULT_MEMORY_PER_WORKER = 128 << 20;

  public final int lockTimeoutMs;
  public final long cacheMemoryBytes;
  public final long maxLineage;
  public final boolean isCountingRows;
  public final WorkerSettings worker;

  /** All values of Cairn's own settings by short name. */
  public final Map<String, Object> values;

  private final StateStoreConf storeConf;

  private StoreSettings(
      StateStoreConf storeConf, Map<String, Object> values, boolean isCountingRows) {
    this.storeConf = storeConf;
    this.values = values;
    this.isCountingRows = isCountingRows;
    lockTimeoutMs = number("lockTimeoutMs").intValue();
    maxLineage = number("maxLineage");
    Long cache = number("cacheMemory");
    cacheMemoryBytes =
        cache != null ? cache : Math.max(1 << 20, Runtime.getRuntime().maxMemory() / 10);
    worker = workerSettings();
  }

  /** Reads and checks the settings; one error names every fault. */
  public static StoreSettings of(StateStoreConf storeConf) {
    Map<String, String> confs = CollectionConverters.asJava(storeConf.sqlConfs());
    List<String> faults = new ArrayList<>();
    Map<String, Object> values = SettingsTable.get().values(confs, faults);
    String encoding = storeConf.stateStoreEncodingFormat();
    if (!encoding.equals("unsaferow") && !encoding.equals("avro")) {
      faults.add(
          "spark.sql.streaming.stateStore.encodingFormat is '"
              + encoding
              + "' but must be unsaferow or avro");
    }
    String track = rocksdb(confs, TRACK_ROWS, "true");
    if (!track.equalsIgnoreCase("true") && !track.equalsIgnoreCase("false")) {
      faults.add(TRACK_ROWS + " is '" + track + "' but must be true or false");
    }
    checkHeap((Long) values.get("cacheMemory"), faults);
    if (!faults.isEmpty()) {
      throw CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_CONFIG",
          String.join("; ", faults),
          "correct the settings and start the query again");
    }
    return new StoreSettings(storeConf, values, Boolean.parseBoolean(track));
  }

  /**
   * Adds a fault if the cache cannot fit into the heap: it would fill it, perhaps after days. The
   * driver of a cluster has no cache, and may have a smaller heap than the executors.
   *
   * @param cacheBytes null: the default, which fits
   */
  private static void checkHeap(Long cacheBytes, List<String> faults) {
    long heapBytes = Runtime.getRuntime().maxMemory();
    SparkEnv env = SparkEnv.get();
    boolean isExecutor = env != null && !env.executorId().equals(DRIVER);
    boolean isOfCluster = env != null && !isLocal(env.conf());
    if (cacheBytes == null || cacheBytes <= heapBytes || isOfCluster && !isExecutor) {
      return;
    }
    faults.add(
        SettingsTable.get().prefix()
            + "cacheMemory is "
            + ((cacheBytes - 1) / MIB + 1)
            + " MiB, but the heap of this JVM has at most "
            + heapBytes / MIB
            + " MiB: lower it, or raise "
            + (isExecutor ? "spark.executor.memory" : "spark.driver.memory"));
  }

  private static boolean isLocal(SparkConf spark) {
    String master = spark.get("spark.master", "");
    return master.startsWith("local") && !master.startsWith("local-cluster");
  }

  /**
   * Names the settings of Spark's that have no effect on Cairn in one warning.
   *
   * @param hadoop has the session's settings, also those of no state store
   */
  public static void warnOfUnused(StateStoreConf storeConf, Configuration hadoop) {
    SparkSettings ofSpark = SettingsTable.get().ofSpark();
    Map<String, String> confs = new HashMap<>(CollectionConverters.asJava(storeConf.sqlConfs()));
    confs.keySet().removeIf(name -> name.startsWith(SettingsTable.get().prefix()));
    for (String name : ofSpark.outsidePrefix()) {
      String value = hadoop.get(name);
      if (value != null) {
        confs.put(name, value);
      }
    }
    ofSpark.warn(confs);
  }

  /** The value of a setting of Spark's RocksDB provider, which ignores the case of names. */
  private static String rocksdb(Map<String, String> confs, String name, String otherwise) {
    return confs.entrySet().stream()
        .filter(entry -> entry.getKey().equalsIgnoreCase(name))
        .map(entry -> entry.getValue().trim())
        .findFirst()
        .orElse(otherwise);
  }

  private String text(String name) {
    return (String) values.get(name);
  }

  private Long number(String name) {
    return (Long) values.get(name);
  }

  /** The settings that the engine needs for one store, by the names that it knows. */
  public Map<String, Object> engineConf() {
    Map<String, Object> conf = SettingsTable.get().engineValues(values);
    conf.put("minDeltasForSnapshot", storeConf.minDeltasForSnapshot());
    conf.put("minBatchesToRetain", storeConf.minVersionsToRetain());
    conf.put("requestTimeoutMs", number("requestTimeoutMs"));
    return conf;
  }

  private WorkerSettings workerSettings() {
    SparkEnv env = SparkEnv.get();
    SparkConf spark = env == null ? new SparkConf() : env.conf();
    Long workersSet = number("workers");
    int processors = Runtime.getRuntime().availableProcessors();
    int workers =
        workersSet != null ? workersSet.intValue() : Math.max(1, slots(spark, env, processors) / 4);
    return new WorkerSettings(
        python(spark),
        localDir(spark),
        // Spark deletes its own local directories when the application ends.
        text("localDir") != null,
        workers,
        new WorkerSettings.Resources(
            workerMemory(workers) / workers, number("localDiskBytes") / workers),
        new WorkerSettings.Timeouts(
            WorkerSettings.Timeouts.START_MS, number("requestTimeoutMs").intValue()));
  }

  private long workerMemory(int workers) {
    Long set = number("workerMemory");
    return set != null ? set : Math.max(DEFAULT_MEMORY, workers * DEFAULT_MEMORY_PER_WORKER);
  }

  private String python(SparkConf spark) {
    String python = text("python");
    if (python != null) {
      return python;
    }
    if (spark.contains("spark.pyspark.python")) {
      return spark.get("spark.pyspark.python");
    }
    String environment = System.getenv("PYSPARK_PYTHON");
    return environment == null || environment.isEmpty() ? "python3" : environment;
  }

  private String localDir(SparkConf spark) {
    String dir = text("localDir");
    if (dir != null) {
      return dir;
    }
    // One folder per user, because other users of the machine may share the directory.
    return Utils.getConfiguredLocalDirs(spark)[0] + "/cairn-" + System.getProperty("user.name");
  }

  /**
   * Number of task slots of this executor; in local mode it is in the master's name.
   *
   * @param env null: Spark does not run
   * @param processors of this machine
   */
  static int slots(SparkConf spark, SparkEnv env, int processors) {
    int cores = processors;
    String master = spark.get("spark.master", "");
    if (isLocal(spark)) {
      java.util.regex.Matcher threads =
          java.util.regex.Pattern.compile("local\\[(\\d+)[,\\]].*|local\\[(\\d+)]").matcher(master);
      if (master.equals("local")) {
        cores = 1;
      } else if (threads.matches()) {
        cores = Integer.parseInt(threads.group(1) != null ? threads.group(1) : threads.group(2));
      }
    } else if (env != null) {
      // Spark's default: one core on YARN and Kubernetes, else all that the machine has.
      boolean isOneCore = master.startsWith("yarn") || master.startsWith("k8s");
      cores = spark.getInt("spark.executor.cores", isOneCore ? 1 : processors);
    }
    return cores / Math.max(1, spark.getInt("spark.task.cpus", 1));
  }
}
