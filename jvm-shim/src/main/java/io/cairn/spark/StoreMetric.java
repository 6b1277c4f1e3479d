package io.cairn.spark;

import java.util.ArrayList;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSizeMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSumMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomTimingMetric;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What a store reports in a query's progress, beside its rows and memory. Names are public: never
 * change one.
 *
 * <p>Spark sums each over the partitions; a metric that it was not told of fails the task.
 */
enum StoreMetric {
  CACHE_BYTES("cairnCacheBytes", "heap of the state cache", Unit.NOW),
  CACHE_ENTRIES("cairnCacheEntries", "committed keys in the state cache", Unit.NOW),
  CACHE_HITS("cairnCacheHits", "reads that the state cache answered", Unit.COUNT),
  CACHE_MISSES("cairnCacheMisses", "keys that the engine was asked for", Unit.COUNT),
  CACHE_EVICTIONS("cairnCacheEvictions", "slabs dropped from the state cache for room", Unit.COUNT),
  SPILLS("cairnSpills", "spills of one batch's writes to the engine before its commit", Unit.COUNT),
  ROWS_READ("cairnRowsRead", "rows that the engine sent", Unit.COUNT),
  READS("cairnReads", "keys read", Unit.COUNT),
  PUTS("cairnPuts", "keys put or appended to", Unit.COUNT),
  REMOVES("cairnRemoves", "keys removed", Unit.COUNT),
  LOAD_MS("cairnLoadMs", "time to open the version", Unit.MILLIS),
  REPLAYED("cairnReplayedChangelogs", "changelogs applied to open the version", Unit.COUNT),
  DOWNLOADED_BYTES(
      "cairnDownloadedBytes",
      "bytes fetched from the object store to open the version",
      Unit.BYTES),
  COMMIT_MS("cairnCommitMs", "time of the commit as the task sees it", Unit.MILLIS),
  ENCODE_MS("cairnEncodeMs", "time to write the changelog's bytes", Unit.MILLIS),
  PUT_MS("cairnPutMs", "time of the commit's PUT", Unit.MILLIS),
  CHANGELOG_BYTES("cairnChangelogBytes", "bytes of the changelog", Unit.BYTES),
  WORKER_START_MS(
      "cairnWorkerStartMs", "time to start the worker, in the batch that started it", Unit.MILLIS),
  ENGINE_BYTES("cairnEngineBytes", "memory of the engine for this store: its memtables", Unit.NOW),
  SST_BYTES("cairnSstBytes", "bytes of the store's SST files on the local disk", Unit.NOW),
  INTERNAL_KEYS(
      "cairnInternalKeys", "keys of column families that Spark keeps for itself", Unit.NOW);

  private enum Unit {
    COUNT,
    MILLIS,
    BYTES,

    /**
     * What stands now, rather than what this batch did: bytes or keys. Spark knows such metrics as
     * sizes only.
     */
    NOW
  }

  private static final Seq<StateStoreCustomMetric> ALL = all();

  private final StateStoreCustomMetric metric;

  StoreMetric(String name, String description, Unit unit) {
    metric =
        switch (unit) {
          case COUNT -> new StateStoreCustomSumMetric(name, description);
          case MILLIS -> new StateStoreCustomTimingMetric(name, description);
          case BYTES -> new StateStoreCustomSizeMetric(name, description, false);
          case NOW -> new StateStoreCustomSizeMetric(name, description, true);
        };
  }

  /** Every metric, the same for all instances, initialised or not. */
  static Seq<StateStoreCustomMetric> supported() {
    return ALL;
  }

  private static Seq<StateStoreCustomMetric> all() {
    List<StateStoreCustomMetric> metrics = new ArrayList<>();
    for (StoreMetric value : values()) {
      metrics.add(value.metric);
    }
    return CollectionConverters.asScala(metrics).toSeq();
  }

  /** Values of one session, as Spark takes them. */
  static scala.collection.immutable.Map<StateStoreCustomMetric, Object> asScala(
      EnumMap<StoreMetric, Long> values) {
    Map<StateStoreCustomMetric, Object> all = new HashMap<>();
    for (StoreMetric value : values()) {
      all.put(value.metric, values.getOrDefault(value, 0L));
    }
    return scala.collection.immutable.Map.from(CollectionConverters.asScala(all));
  }
}
