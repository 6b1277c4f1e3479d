package io.cairn.spark;

import com.fasterxml.jackson.databind.JsonNode;
import io.cairn.spark.tier.TierStats;
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
    TierStats tier = store.tier.stats();
    TierStats before = session.statsBefore;
    VersionState version = session.result() != null ? session.result() : session.base;
    EnumMap<ShimMetrics, Long> values = new EnumMap<>(ShimMetrics.class);
    values.put(ShimMetrics.TIER_BYTES, tier.bytes());
    values.put(ShimMetrics.TIER_ENTRIES, tier.entries());
    values.put(ShimMetrics.TIER_HITS, tier.hits() - before.hits());
    values.put(ShimMetrics.TIER_MISSES, tier.misses() - before.misses());
    values.put(ShimMetrics.TIER_EVICTIONS, tier.evictions() - before.evictions());
    values.put(ShimMetrics.SPILLS, tier.spills() - before.spills());
    values.put(ShimMetrics.ROWS_READ, session.engine.rowsRead());
    values.put(ShimMetrics.READS, session.tier.reads());
    values.put(ShimMetrics.PUTS, session.tier.puts());
    values.put(ShimMetrics.REMOVES, session.tier.removes());
    values.put(ShimMetrics.LOAD_MS, session.loadMs);
    values.put(ShimMetrics.COMMIT_MS, session.commitMs());
    values.put(ShimMetrics.INTERNAL_KEYS, version.internalKeys());
    values.put(ShimMetrics.WORKER_START_MS, session.workerStartMs);
    addLoad(values, session.loaded);
    long engineBytes = addCommit(values, session.commitAnswer());
    return new StateStoreMetrics(
        version.externalKeys(),
        tier.bytes() + engineBytes,
        ShimMetrics.asScala(values),
        instanceMetrics(store.id, store.snapshotVersion()));
  }

  private static void addLoad(EnumMap<ShimMetrics, Long> values, JsonNode loaded) {
    if (loaded != null) {
      values.put(ShimMetrics.REPLAYED, loaded.path("changelogs_replayed").asLong());
      values.put(ShimMetrics.DOWNLOADED_BYTES, loaded.path("bytes_downloaded").asLong());
    }
  }

  private static long addCommit(EnumMap<ShimMetrics, Long> values, JsonNode answer) {
    if (answer == null) {
      return 0;
    }
    // The block cache is shared by all stores of a worker and bounded there; a store's own are its
    // memtables.
    long engineBytes = answer.path("engine").path("memtable_bytes").asLong();
    values.put(ShimMetrics.SST_BYTES, answer.path("engine").path("sst_bytes").asLong());
    values.put(ShimMetrics.ENCODE_MS, answer.path("encode_ms").asLong());
    values.put(ShimMetrics.PUT_MS, answer.path("put_ms").asLong());
    values.put(ShimMetrics.CHANGELOG_BYTES, answer.path("changelog_bytes").asLong());
    values.put(ShimMetrics.ENGINE_BYTES, engineBytes);
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
