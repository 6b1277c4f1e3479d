package io.cairn.spark;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.all;
import static io.cairn.spark.StoreFixture.key;
import static io.cairn.spark.StoreFixture.metric;
import static io.cairn.spark.StoreFixture.value;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Map;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;

/** Keys that a batch adds and removes again, more of them than the write buffer has space for. */
class WithdrawnKeysTest {
  private StoreFixture fixture;
  private CairnStateStoreProvider provider;

  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture();
    fixture.settings.put(StoreFixture.CAIRN + "cacheMemory", "4m");
    provider = fixture.provider();
  }

  @AfterEach
  void close() throws IOException {
    fixture.close();
  }

  private void commitAndExpectNothing(StateStore store) {
    store.commit();
    assertTrue(metric(store, "cairnSpills") > 0, "no spill");
    assertEquals(0, store.metrics().numKeys());
    Option<String> id = store.getStateStoreCheckpointInfo().stateStoreCkptId();
    assertEquals(Map.of(), rows(provider, id));
    assertEquals(Map.of(), rows(fixture.provider(), id), "in another instance");
  }

  private static Map<Long, String> rows(CairnStateStoreProvider from, Option<String> id) {
    StateStore store = from.getStore(1, id, false, false);
    try {
      return all(store.iterator("default"));
    } finally {
      store.abort();
    }
  }

  private static void put(StateStore store, long key) {
    store.put(key(key), value("v" + key), "default");
  }

  /** Puts, reads and removes each key: the write buffer has deletes of absent keys alone. */
  private static void withdraw(StateStore store, long from, long to) {
    for (long key = from; key < to; key++) {
      put(store, key);
      assertNotNull(store.get(key(key), "default"));
      store.remove(key(key), "default");
    }
  }

  @Test
  void keysThatArePutAndRemovedOneByOneAreAbsent() {
    StateStore store = provider.getStore(0, NO_ID, false, false);
    withdraw(store, 0, 60_000);

    commitAndExpectNothing(store);
  }

  @Test
  void keysThatAreAllPutAndThenRemovedAreAbsent() {
    StateStore store = provider.getStore(0, NO_ID, false, false);
    for (long key = 0; key < 30_000; key++) {
      put(store, key);
    }
    for (long key = 0; key < 30_000; key++) {
      store.remove(key(key), "default");
    }
    withdraw(store, 30_000, 60_000);

    commitAndExpectNothing(store);
  }
}
