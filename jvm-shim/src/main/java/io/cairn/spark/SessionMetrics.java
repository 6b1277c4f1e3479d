package io.cairn.spark;

import com.fasterxml.jackson.databind.JsonNode;
import io.cairn.spark.cache.StateCache;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreInstanceMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.StateStoreSnapshotLastUploadInstanceMetric;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** One session's figures, gathered when Spark asks: after its end as well as before. */
final class SessionMetrics {
  private SessionMetrics() {}

  static StateStoreMetrics of(StoreSession session) {
    StoreInstance store = session.store;
    StateCache.Stats cache = store.cache.stats();
    StateCache.Stats before = session.statsBefore;
    StoreVersion version = session.result() != null ? session.result() : session.base;
    EnumMap<StoreMetric, Long> values = new EnumMap<>(StoreMetric.class);
    values.put(StoreMetric.CACHE_BYTES, cache.bytes());
    values.put(StoreMetric.CACHE_ENTRIES, cache.entries());
    values.put(StoreMetric.CACHE_HITS, cache.hits() - before.hits());
    values.put(StoreMetric.CACHE_MISSES, cache.misses() - before.misses());
    values.put(StoreMetric.CACHE_EVICTIONS, cache.evictions() - before.evictions());
    values.put(StoreMetric.SPILLS, cache.spills() - before.spills());
    values.put(StoreMetric.ROWS_READ, session.engine.rowsRead());
    values.put(StoreMetric.READS, session.cache.reads());
    values.put(StoreMetric.PUTS, session.cache.puts());
    values.put(StoreMetric.REMOVES, session.cache.removes());
    values.put(StoreMetric.LOAD_MS, session.loadMs);
    values.put(StoreMetric.COMMIT_MS, session.commitMs());
    values.put(StoreMetric.INTERNAL_KEYS, version.internalKeys());
    values.put(StoreMetric.WORKER_START_MS, session.workerStartMs);
    addLoad(values, session.loaded);
    long engineBytes = addCommit(values, session.commitAnswer());
    return new StateStoreMetrics(
        version.externalKeys(),
        cache.bytes() + engineBytes,
        StoreMetric.asScala(values),
        instanceMetrics(store.id, store.snapshotVersion()));
  }

  private static void addLoad(EnumMap<StoreMetric, Long> values, JsonNode loaded) {
    if (loaded != null) {
      values.put(StoreMetric.REPLAYED, loaded.path("changelogs_replayed").asLong());
      values.put(StoreMetric.DOWNLOADED_BYTES, loaded.path("bytes_downloaded").asLong());
    }
  }

  private static long addCommit(EnumMap<StoreMetric, Long> values, JsonNode answer) {
    if (answer == null) {
      return 0;
    }
    // The block cache is shared by all stores of a worker and bounded there; a store's own are its
    // memtables.
    long engineBytes = answer.path("engine").path("memtable_bytes").asLong();
    values.put(StoreMetric.SST_BYTES, answer.path("engine").path("sst_bytes").asLong());
    values.put(StoreMetric.ENCODE_MS, answer.path("encode_ms").asLong());
    values.put(StoreMetric.PUT_MS, answer.path("put_ms").asLong());
    values.put(StoreMetric.CHANGELOG_BYTES, answer.path("changelog_bytes").asLong());
    values.put(StoreMetric.ENGINE_BYTES, engineBytes);
    return engineBytes;
  }

  private static scala.collection.immutable.Map<StateStoreInstanceMetric, Object> instanceMetrics(
      StateStoreId id, long snapshotVersion) {
    Map<StateStoreInstanceMetric, Object> metrics = new HashMap<>();
    metrics.put(
        new StateStoreSnapshotLastUploadInstanceMetric(
            Option.<Object>apply(id.partitionId()), id.storeName()),
        snapshotVersion);
    return scala.collection.immutable.Map.from(CollectionConverters.asScala(metrics));
  }
}
