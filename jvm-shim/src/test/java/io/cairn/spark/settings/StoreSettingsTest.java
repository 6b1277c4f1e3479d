package io.cairn.spark.settings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.CairnStateStoreProvider;
import io.cairn.spark.LogOf;
import io.cairn.spark.StoreFixture;
import io.cairn.spark.errors.CairnException;
import java.io.IOException;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.logging.log4j.Level;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.junit.jupiter.api.Test;

/**
 * Settings are checked in init: a fault is found before anything starts, and all faults at once.
 */
class StoreSettingsTest {
  /** A misspelled name must not silently select the default. */
  @Test
  void anUnknownNameIsRefusedWithTheNearestKnownOne() throws IOException {
    try (StoreFixture fixture = new StoreFixture()) {
      fixture.settings.put(StoreFixture.CAIRN + "lockTimeoutMS", "5");
      fixture.settings.put(StoreFixture.CAIRN + "workerMemroy", "1g");

      CairnException error = assertThrows(CairnException.class, fixture::provider);

      assertEquals("CAIRN_CONFIG", error.code());
      assertTrue(
          error
              .getMessage()
              .contains(
                  "lockTimeoutMS is unknown; the nearest known name is "
                      + StoreFixture.CAIRN
                      + "lockTimeoutMs"),
          error.getMessage());
      assertTrue(
          error.getMessage().contains(StoreFixture.CAIRN + "workerMemory"), error.getMessage());
    }
  }

  /** Sizes as Spark writes them, and as people do. */
  @Test
  void sizesMayHaveBinaryUnits() throws IOException {
    for (String size : new String[] {"134217728", "134217728b", "128m", "128MB", "128MiB"}) {
      try (StoreFixture fixture = new StoreFixture()) {
        fixture.settings.put(StoreFixture.CAIRN + "cacheMemory", size);
        assertEquals(128L << 20, StoreSettings.of(fixture.conf()).cacheMemoryBytes, size);
      }
    }
  }

  /** Each worker needs 32 MiB for its code alone: many workers must not share 256 MiB. */
  @Test
  void manyWorkersHaveMoreMemoryByDefault() throws IOException {
    for (int workers : new int[] {1, 2, 8}) {
      try (StoreFixture fixture = new StoreFixture()) {
        fixture.settings.put(StoreFixture.CAIRN + "workers", String.valueOf(workers));
        long expected = workers == 1 ? 256 << 20 : 128 << 20;
        assertEquals(
            expected, StoreSettings.of(fixture.conf()).worker.resources().memoryBytes(), "default");

        fixture.settings.put(StoreFixture.CAIRN + "workerMemory", "512m");
        assertEquals(
            (512 << 20) / workers,
            StoreSettings.of(fixture.conf()).worker.resources().memoryBytes());
      }
    }
  }

  /**
   * A count by the machine's processors would start workers for which {@code cairn.spark_conf()}
   * has not reserved memory, and the container would be killed.
   */
  @Test
  void anExecutorOnYarnOrKubernetesHasOneSlotByDefault() {
    SparkConf spark = new SparkConf(false);
    SparkEnv env = env("1", spark);

    for (String master : new String[] {"yarn", "k8s://https://host:6443"}) {
      spark.set("spark.master", master);
      assertEquals(1, StoreSettings.slots(spark, env, 16), master);
    }
    spark.set("spark.executor.cores", "5");
    assertEquals(5, StoreSettings.slots(spark, env, 16));
    spark.remove("spark.executor.cores");
    for (String master : new String[] {"spark://host:7077", "local-cluster[2,1,1024]"}) {
      spark.set("spark.master", master);
      assertEquals(16, StoreSettings.slots(spark, env, 16), master);
    }
  }

  /** A cache without room in the heap would end the executor when it is full, after days. */
  @Test
  void aCacheThatIsLargerThanTheHeapIsRefused() throws IOException {
    long heapBytes = Runtime.getRuntime().maxMemory();
    SparkConf cluster = new SparkConf(false).set("spark.master", "spark://host:7077");
    SparkConf local = new SparkConf(false).set("spark.master", "local[2]");
    try (StoreFixture fixture = new StoreFixture()) {
      fixture.settings.put(StoreFixture.CAIRN + "cacheMemory", String.valueOf(heapBytes + 1));
      String said =
          String.format(
              "cacheMemory is %d MiB, but the heap of this JVM has at most %d MiB: lower it, or"
                  + " raise ",
              heapBytes / (1 << 20) + 1, heapBytes / (1 << 20));

      for (SparkEnv env : new SparkEnv[] {env("1", cluster), env("driver", local), null}) {
        CairnException error =
            assertThrows(CairnException.class, () -> settings(fixture, env), "" + env);
        assertEquals("CAIRN_CONFIG", error.code());
        boolean isExecutor = env != null && env.executorId().equals("1");
        String raise = isExecutor ? "spark.executor.memory" : "spark.driver.memory";
        assertTrue(error.getMessage().contains(said + raise), error.getMessage());
      }

      fixture.settings.put(StoreFixture.CAIRN + "cacheMemory", String.valueOf(heapBytes));
      assertEquals(heapBytes, settings(fixture, env("1", cluster)).cacheMemoryBytes);
    }
  }

  /** The driver has no cache; its heap may be smaller than that of the executors. */
  @Test
  void theHeapOfAClustersDriverMayBeSmallerThanTheCache() throws IOException {
    long cacheBytes = Runtime.getRuntime().maxMemory() + 1;
    SparkConf spark = new SparkConf(false);
    try (StoreFixture fixture = new StoreFixture()) {
      fixture.settings.put(StoreFixture.CAIRN + "cacheMemory", String.valueOf(cacheBytes));

      for (String master : new String[] {"yarn", "local-cluster[2,1,1024]"}) {
        SparkEnv env = env("driver", spark.set("spark.master", master));
        assertEquals(cacheBytes, settings(fixture, env).cacheMemoryBytes, master);
      }
    }
  }

  private static StoreSettings settings(StoreFixture fixture, SparkEnv env) {
    SparkEnv before = SparkEnv.get();
    SparkEnv.set(env);
    try {
      return StoreSettings.of(fixture.conf());
    } finally {
      SparkEnv.set(before);
    }
  }

  /** Spark's environment of a process, without its services. */
  private static SparkEnv env(String executorId, SparkConf spark) {
    return new SparkEnv(
        executorId, null, null, null, null, null, null, null, null, null, null, spark);
  }

  /** The error names type and range. */
  @Test
  void valuesOutOfTypeOrRangeAreRefusedTogether() throws IOException {
    try (StoreFixture fixture = new StoreFixture()) {
      fixture.settings.put(StoreFixture.CAIRN + "workers", "0");
      fixture.settings.put(StoreFixture.CAIRN + "workerMemory", "much");
      fixture.settings.put(StoreFixture.CAIRN + "s3.pathStyle", "yes");
      fixture.settings.put(StoreFixture.CAIRN + "s3.credentials", "mine");

      CairnException error = assertThrows(CairnException.class, fixture::provider);

      for (String part :
          new String[] {
            "from 1 to 64", "such as 512m", "true or false", "one of hadoop, aws, anonymous"
          }) {
        assertTrue(error.getMessage().contains(part), error.getMessage());
      }
      assertFalse(Files.exists(fixture.folder.resolve("state")), "a refused store left a folder");
    }
  }

  /**
   * A user who tunes Spark's RocksDB must find in the log that the settings change nothing. Of
   * Spark's settings outside the prefix of state stores only Hadoop's configuration has the value.
   */
  @Test
  void settingsWithoutAnEffectAreNamedInTheLogWhenAStoreIsOpened() throws IOException {
    try (StoreFixture fixture = new StoreFixture();
        LogOf log = new LogOf(SparkSettings.class.getName(), Level.WARN)) {
      // A JVM warns once of the same settings: no other test has these values.
      fixture.settings.put("spark.sql.streaming.stateStore.rocksdb.blockCacheSizeMB", "77");
      fixture.hadoop.set("spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint", "0.77");

      fixture.provider();

      assertEquals(1, log.lines.size(), log.lines.toString());
      String warning = log.lines.get(0);
      assertTrue(warning.contains("rocksdb.blockCacheSizeMB=77 (cairn.workerMemory)"), warning);
      assertTrue(warning.contains("ratioExtraSpaceAllowedInCheckpoint=0.77"), warning);
    }
  }

  /** Spark's RocksDB provider ignores the case of these names, so Cairn must not overlook one. */
  @Test
  void theCaseOfARocksdbNameDoesNotMatter() throws IOException {
    try (StoreFixture fixture = new StoreFixture()) {
      fixture.settings.put(
          "spark.sql.streaming.stateStore.rocksdb.tracktotalnumberofrows", "false");

      assertFalse(StoreSettings.of(fixture.conf()).isCountingRows);
    }
  }

  /**
   * Every scheme but those of S3 and local files is Hadoop's; a path without one is the default.
   */
  @Test
  void otherSchemesAreOfHadoop() {
    Configuration hadoop = new Configuration(false);
    hadoop.set("fs.defaultFS", "hdfs://default:9000");

    for (String[] one :
        new String[][] {
          {"hdfs://name:9000/x/state/0/0", "hdfs://name:9000/x/state/0/0"},
          {"viewfs:///x", "viewfs:///x"},
          {"OwnFs://name/x", "OwnFs://name/x"},
          {"abfs://container@account.host/x", "abfs://container@account.host/x"},
          {"/a b/%20", "hdfs://default:9000/a b/%20"}
        }) {
      StorageLocation location = StorageLocation.of(new Path(one[0]), hadoop);

      assertTrue(location.isOfHadoop());
      assertFalse(location.isS3() || location.isFile());
      assertEquals(one[1], location.url());
      assertEquals(new Path(one[1]), location.hadoopPath());
    }
    assertTrue(StorageLocation.of(new Path("S3a://bucket/x"), hadoop).isS3());
    assertTrue(StorageLocation.of(new Path("file:///x"), hadoop).isFile());
  }

  /** The first query on a machine without the configured Python must name it. */
  @Test
  void aMissingPythonIsNamed() throws IOException {
    try (StoreFixture fixture = new StoreFixture()) {
      fixture.settings.put(StoreFixture.CAIRN + "python", "/nowhere/python");
      CairnStateStoreProvider provider = fixture.provider();

      Throwable error =
          assertThrows(
              Throwable.class, () -> provider.getStore(0, StoreFixture.NO_ID, false, false));

      assertTrue(
          StoreFixture.chain(error).contains("[CAIRN_PYTHON] cannot run Python '/nowhere/python'"),
          StoreFixture.chain(error));
      assertTrue(
          StoreFixture.chain(error).contains(StoreFixture.CAIRN + "python"),
          StoreFixture.chain(error));
    }
  }

  /** A Python without the package is the most common mistake of a first start. */
  @Test
  void aPythonWithoutThePackageIsNamed() throws IOException {
    try (StoreFixture fixture = new StoreFixture()) {
      fixture.runWorkersBy("#!/bin/sh\nexec " + StoreFixture.PYTHON + " -I -S \"$@\"\n");
      CairnStateStoreProvider provider = fixture.provider();

      Throwable error =
          assertThrows(
              Throwable.class, () -> provider.getStore(0, StoreFixture.NO_ID, false, false));

      assertTrue(
          StoreFixture.chain(error).contains("has no package cairn"), StoreFixture.chain(error));
    }
  }
}
