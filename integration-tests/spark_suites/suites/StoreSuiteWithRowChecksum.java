package io.cairn.suites;

import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreSuiteWithRowChecksum;
import org.scalatest.Args;
import org.scalatest.Status;
import org.scalatest.SucceededStatus$;
import scala.Tuple2;
import scala.collection.immutable.Set;

/** The tests of {@link StoreSuite} once more, with row checksums. */
public final class StoreSuiteWithRowChecksum extends RocksDBStateStoreSuiteWithRowChecksum {
  private static final long serialVersionUID = 1L;

  @Override
  public Status runTest(String name, Args args) {
    return StoreTests.isLeftOut(name) ? SucceededStatus$.MODULE$ : super.runTest(name, args);
  }

  @Override
  public Set<Tuple2<Tuple2<String, Object>, Object>> getLatestData(
      RocksDBStateStoreProvider provider, boolean useColumnFamilies) {
    return StoreTests.isOfSpark(provider)
        ? super.getLatestData(provider, useColumnFamilies)
        : getData(provider, StoreTests.latestVersion(provider), useColumnFamilies);
  }
}
