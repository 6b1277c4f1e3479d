package io.cairn.bench;

import java.util.UUID;
import java.util.function.ObjLongConsumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.internal.SQLConf;
import scala.Option;

/**
 * One provider instance, called as Spark's tasks call it: open the last version, read and write,
 * commit, get the metrics.
 *
 * <p>Not thread-safe, but {@link #maintain()} may run on another thread, as Spark's maintenance.
 */
final class StoreUnderTest implements AutoCloseable {
  static final String COLUMN_FAMILY = StateStore.DEFAULT_COL_FAMILY_NAME();

  private final StateStoreProvider provider;
  private final StateStoreConf conf;
  private final Rows rows;
  private final ProviderTimes times = new ProviderTimes();
  private long version;
  private Option<String> checkpointId = Option.empty();
  private StateStoreMetrics metrics;

  /** Creates the provider as Spark does; the first batch loads the store. */
  StoreUnderTest(BenchOptions options, int partition, String storeName) {
    this(options, partition, storeName, Rows.of(options));
  }

  /** The same for a store of these rows, which only the calling thread may use. */
  StoreUnderTest(BenchOptions options, int partition, String storeName, Rows rows) {
    this.rows = rows;
    SQLConf sqlConf = new SQLConf();
    options.conf().forEach(sqlConf::setConfString);
    sqlConf.setConfString("spark.sql.streaming.stateStore.providerClass", options.providerClass());
    // Without a query there is no coordinator to report to.
    sqlConf.setConfString("spark.sql.streaming.stateStore.commitValidation.enabled", "false");
    sqlConf.setConfString(
        "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag", "false");

    UUID run = UUID.randomUUID();
    Configuration hadoopConf = new Configuration();
    sqlConf
        .getAllConfs()
        .foreach(
            pair -> {
              hadoopConf.set(pair._1(), pair._2());
              return null;
            });
    hadoopConf.set("sql.streaming.runId", run.toString());

    String root = new Path(new Path(options.checkpoint()), "state").toString();
    StateStoreId storeId = new StateStoreId(root, 0, partition, storeName);
    this.conf = StateStoreConf.apply(sqlConf);
    this.provider =
        StateStoreProvider.createAndInit(
            new StateStoreProviderId(storeId, run),
            rows.keySchema,
            rows.valueSchema,
            rows.keySpec,
            rows.areLists, // Spark has lists in stores of column families alone
            conf,
            hadoopConf,
            rows.areLists,
            Option.empty());
  }

  /** Creates another provider instance of the same store, at the same version. */
  StoreUnderTest another(BenchOptions options) {
    StateStoreId id = provider.stateStoreId();
    StoreUnderTest other = new StoreUnderTest(options, id.partitionId(), id.storeName());
    other.version = version;
    other.checkpointId = checkpointId;
    return other;
  }

  StateStore open() {
    return provider.getStore(version, checkpointId, false, false);
  }

  ReadStateStore openToRead() {
    return provider.getReadStore(version, checkpointId);
  }

  /** Commits {@code store} and returns the time of {@code commit()} alone. */
  long commit(StateStore store) {
    long start = System.nanoTime();
    long committed = store.commit();
    long nanos = System.nanoTime() - start;
    version = committed;
    if (conf.enableStateStoreCheckpointIds()) {
      checkpointId = store.getStateStoreCheckpointInfo().stateStoreCkptId();
    }
    metrics = store.metrics();
    times.add(metrics);
    return nanos;
  }

  /** Runs one batch and returns its time from open to metrics. */
  long batch(long[] keys, ObjLongConsumer<StateStore> perKey) {
    long start = System.nanoTime();
    StateStore store = open();
    for (long key : keys) {
      perKey.accept(store, key);
    }
    commit(store);
    return System.nanoTime() - start;
  }

  /** Fills the store with the first {@code keyCount} keys in batches of {@code batchRows}. */
  void fill(int keyCount, int batchRows) {
    KeyStream keys = KeyStream.sequential(0);
    for (int done = 0; done < keyCount; done += batchRows) {
      long[] batch = keys.next(Math.min(batchRows, keyCount - done));
      batch(batch, (store, key) -> store.put(rows.key(key), rows.value(key), COLUMN_FAMILY));
    }
  }

  /** Counts the keys by a scan: a provider may be set not to count them. */
  long countKeys() {
    StateStore store = open();
    StateStoreIterator<UnsafeRowPair> pairs = store.iterator(COLUMN_FAMILY);
    long count = 0;
    while (pairs.hasNext()) {
      pairs.next();
      count++;
    }
    pairs.close();
    store.abort();
    return count;
  }

  /** Does the work of Spark's maintenance thread: a snapshot only if enough batches need it. */
  void maintain() {
    provider.doSnapshotMaintenance();
    provider.doCleanupMaintenance();
  }

  /** Commits an empty batch that uploads a snapshot, as Spark asks of a store that lags behind. */
  void snapshot() {
    commit(provider.getStore(version, checkpointId, true, false));
  }

  /** Times that the provider reported since they were cleared. */
  ProviderTimes times() {
    return times;
  }

  /** The value of a custom metric of the last commit; -1 if the provider does not have it. */
  long customMetric(String name) {
    return customMetric(metrics, name);
  }

  /** The value of a custom metric; -1 if the provider does not have it. */
  static long customMetric(StateStoreMetrics metrics, String name) {
    long[] found = {-1};
    metrics
        .customMetrics()
        .foreach(
            pair -> {
              if (pair._1().name().equals(name)) {
                found[0] = (Long) pair._2();
              }
              return null;
            });
    return found[0];
  }

  @Override
  public void close() {
    provider.close();
  }
}
