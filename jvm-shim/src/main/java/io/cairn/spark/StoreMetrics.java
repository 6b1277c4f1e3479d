package io.cairn.spark;

import com.fasterxml.jackson.databind.JsonNode;
import io.cairn.spark.cache.StateCache;
import io.cairn.spark.minor.SparkMinor;
import io.cairn.spark.protocol.CommitReply;
import io.cairn.spark.session.StoreSession;
import io.cairn.spark.session.StoreVersion;
import java.util.Arrays;
import java.util.Map;
import java.util.function.Function;
import java.util.function.ToLongFunction;
import java.util.stream.Collectors;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSumMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomTimingMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreInstanceMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.StateStoreSnapshotLastUploadInstanceMetric;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The metrics of a store in the progress of a query, beside its rows and memory. Names are public:
 * DO NOT RENAME.
 *
 * <p>Spark sums each metric over the partitions. A metric that {@link #supported} does not name
 * fails the task.
 */
enum StoreMetrics {
  CACHE_BYTES("cairnCacheBytes", "heap of the state cache", Unit.NOW, f -> f.now.bytes()),
  CACHE_ENTRIES(
      "cairnCacheEntries", "committed keys in the state cache", Unit.NOW, f -> f.now.entries()),
  CACHE_HITS(
      "cairnCacheHits",
      "reads that the state cache answered",
      Unit.COUNT,
      f -> f.now.hits() - f.before.hits()),
  CACHE_MISSES(
      "cairnCacheMisses",
      "keys that were read from the engine",
      Unit.COUNT,
      f -> f.now.misses() - f.before.misses()),
  CACHE_EVICTIONS(
      "cairnCacheEvictions",
      "slabs that the state cache dropped to free memory",
      Unit.COUNT,
      f -> f.now.evictions() - f.before.evictions()),
  PREFETCH_HITS(
      "cairnPrefetchHits",
      "keys and prefixes that were read before their row, because of a prefetch",
      Unit.COUNT,
      f -> f.session.cache.prefetcher.hits()),
  PREFETCH_MISSES(
      "cairnPrefetchMisses",
      "keys and scans that were read alone from the engine although the operator prefetches",
      Unit.COUNT,
      f -> f.session.cache.prefetcher.misses()),
  PREFETCH_WAIT_MS(
      "cairnPrefetchWaitMs",
      "time for which tasks waited for prefetched keys",
      Unit.MILLIS,
      f -> f.session.cache.prefetcher.waitedMs()),
  CACHE_REFILLS(
      "cairnCacheRefills",
      "refills after which the state cache had the whole state again",
      Unit.COUNT,
      f -> f.now.refills() - f.before.refills()),
  COMPLETE_STORES(
      "cairnCompleteStores",
      "stores whose whole state is in the state cache",
      Unit.NOW,
      f -> f.now.isComplete() ? 1 : 0),
  SPILLS(
      "cairnSpills",
      "spills of one batch's writes to the engine before its commit",
      Unit.COUNT,
      f -> f.now.spills() - f.before.spills()),
  ROWS_READ(
      "cairnRowsRead", "rows that the engine sent", Unit.COUNT, f -> f.session.channel.rowsRead()),
  READS("cairnReads", "keys read", Unit.COUNT, f -> f.session.cache.reads()),
  PUTS("cairnPuts", "keys put or appended to", Unit.COUNT, f -> f.session.cache.puts()),
  REMOVES("cairnRemoves", "keys removed", Unit.COUNT, f -> f.session.cache.removes()),
  LOAD_MS("cairnLoadMs", "time to open the version", Unit.MILLIS, f -> f.session.loadMs()),
  REPLAYED(
      "cairnReplayedChangelogs",
      "changelogs applied to open the version",
      Unit.COUNT,
      f -> f.loaded.path("changelogs_replayed").asLong()),
  DOWNLOADED_BYTES(
      "cairnDownloadedBytes",
      "bytes downloaded from the object store to open the version",
      Unit.BYTES,
      f -> f.loaded.path("bytes_downloaded").asLong()),
  REPAIRS(
      "cairnRepairs",
      "loads that went around a damaged or missing object",
      Unit.COUNT,
      f -> f.loaded.path("repairs").asLong()),
  COMMIT_MS(
      "cairnCommitMs", "time of the commit in the task", Unit.MILLIS, f -> f.session.commitMs()),
  ENCODE_MS(
      "cairnEncodeMs",
      "time to encode the changelog",
      Unit.MILLIS,
      f -> Math.round(f.committed.times().encode() / 1e3)),
  PUT_MS(
      "cairnPutMs",
      "time of the commit's PUT",
      Unit.MILLIS,
      f -> Math.round(f.committed.times().put() / 1e3)),
  MEMORY_WAIT_MS(
      "cairnMemoryWaitMs",
      "time that the commit waited until the engine had memory for its rows",
      Unit.MILLIS,
      f -> Math.round(f.committed.times().memoryWait() / 1e3)),
  SNAPSHOT_WAIT_MS(
      "cairnSnapshotWaitMs",
      "time that the commit waited for a snapshot",
      Unit.MILLIS,
      f -> Math.round(f.committed.times().snapshotWait() / 1e3)),
  CHANGELOG_BYTES(
      "cairnChangelogBytes",
      "bytes of the changelog",
      Unit.BYTES,
      f -> f.committed.changelogBytes()),
  WORKER_START_MS(
      "cairnWorkerStartMs",
      "time to start the worker, in the batch that started it",
      Unit.MILLIS,
      f -> f.session.loaded().workerStartMs()),
  ENGINE_BYTES(
      "cairnEngineBytes",
      "memory of the engine for this store: its memtables",
      Unit.NOW,
      Figures::engineBytes),
  SST_BYTES(
      "cairnSstBytes",
      "bytes of the store's SST files on the local disk",
      Unit.NOW,
      f -> f.committed.sstBytes()),
  SNAPSHOT_BYTES_LEFT(
      "cairnSnapshotBytesLeft",
      "bytes that running snapshots have still to upload",
      Unit.NOW,
      f -> f.committed.snapshots().bytesLeft()),
  LONG_LINEAGES(
      "cairnLongLineages",
      "stores that have a tenth of maxLineage or more versions since their last snapshot",
      Unit.NOW,
      f -> f.committed.snapshots().lineageVersions() * 10 >= f.session.store.maxLineage() ? 1 : 0),
  INTERNAL_KEYS(
      "cairnInternalKeys",
      "keys of column families that Spark uses internally",
      Unit.NOW,
      f -> f.version.keys(true)),

  // Names of Spark's RocksDB provider, where they mean the same: programs ask for them by name.

  SPARK_GETS("rocksdbGetCount", "keys read", READS),
  SPARK_PUTS("rocksdbPutCount", "keys put or appended to", PUTS),
  SPARK_LOAD_MS("rocksdbLoadLatencyMs", "time to open the version", LOAD_MS),
  SPARK_REPLAYED(
      "rocksdbNumReplayChangelogFiles", "changelogs applied to open the version", REPLAYED),
  SPARK_REPAIRS(
      "rocksdbNumSnapshotsAutoRepaired", "loads that went around a damaged object", REPAIRS),
  SPARK_SST_BYTES("rocksdbSstFileSize", "bytes of the SST files", SST_BYTES),
  SPARK_INTERNAL_KEYS(
      "rocksdbNumInternalColFamiliesKeys", "keys of internal column families", INTERNAL_KEYS),
  SPARK_INTERNAL_FAMILIES(
      "rocksdbNumInternalColumnFamilies",
      "internal column families",
      Unit.NOW,
      f -> f.version.familyCount(true)),
  SPARK_EXTERNAL_FAMILIES(
      "rocksdbNumExternalColumnFamilies",
      "column families that are not internal",
      Unit.NOW,
      f -> f.version.familyCount(false)),
  SPARK_FORCED_SNAPSHOTS(
      "rocksdbForceSnapshotCount",
      "commits that Spark asked to upload a snapshot",
      Unit.COUNT,
      f -> f.session.isForcingSnapshot() ? 1 : 0);

  private enum Unit {
    COUNT,
    MILLIS,
    BYTES,

    /** Present bytes or keys, not those of one batch. Spark has them only as sizes. */
    NOW
  }

  /** The sources of one session's values. */
  private record Figures(
      StoreSession session,
      StateCache.Stats before,
      StateCache.Stats now,
      StoreVersion version,
      JsonNode loaded,
      CommitReply committed) {
    /** The block cache belongs to the worker; the memtables are the store's own. */
    long engineBytes() {
      return committed.memtableBytes();
    }
  }

  private static final Seq<StateStoreCustomMetric> ALL =
      CollectionConverters.asScala(Arrays.stream(values()).map(value -> value.metric).toList())
          .toSeq();

  private static final scala.collection.immutable.Map<StateStoreCustomMetric, StoreMetrics>
      BY_METRIC =
          asScala(
              Arrays.stream(values())
                  .collect(Collectors.toMap(value -> value.metric, Function.identity())));

  private final StateStoreCustomMetric metric;
  private final Unit unit;
  private final ToLongFunction<Figures> read;

  /** The same value under another name. */
  StoreMetrics(String name, String description, StoreMetrics same) {
    this(name, description, same.unit, same.read);
  }

  StoreMetrics(String name, String description, Unit unit, ToLongFunction<Figures> read) {
    this.unit = unit;
    this.read = read;
    metric =
        switch (unit) {
          case COUNT -> new StateStoreCustomSumMetric(name, description);
          case MILLIS -> new StateStoreCustomTimingMetric(name, description);
          case BYTES -> SparkMinor.sizeMetric(name, description, false);
          case NOW -> SparkMinor.sizeMetric(name, description, true);
        };
  }

  /** Every metric; the same object for all providers, initialised or not. */
  static Seq<StateStoreCustomMetric> supported() {
    return ALL;
  }

  /** The values of a session, during it or after its end. */
  static StateStoreMetrics of(StoreSession session) {
    Figures figures =
        new Figures(
            session,
            session.statsBefore(),
            session.stats(),
            session.result() != null ? session.result() : session.baseVersion,
            session.loaded().answer(),
            session.commitReply());
    StateStoreInstanceMetric snapshot =
        new StateStoreSnapshotLastUploadInstanceMetric(
            Option.<Object>apply(session.store.id.partitionId()), session.store.id.storeName());
    return new StateStoreMetrics(
        figures.version.keys(false),
        figures.now.bytes() + figures.engineBytes(),
        custom(figures),
        asScala(
            Map.<StateStoreInstanceMetric, Object>of(snapshot, session.store.snapshotVersion())));
  }

  /** The value of each metric. The keys are those of another map: none of them is hashed again. */
  @SuppressWarnings("unchecked") // Scala's type of the result is lost in Java.
  private static scala.collection.immutable.Map<StateStoreCustomMetric, Object> custom(
      Figures figures) {
    return BY_METRIC.<Object>transform((metric, value) -> value.read.applyAsLong(figures));
  }

  private static <K, V> scala.collection.immutable.Map<K, V> asScala(Map<K, V> map) {
    return scala.collection.immutable.Map.from(CollectionConverters.asScala(map));
  }
}
