package io.cairn.spark;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.all;
import static io.cairn.spark.StoreFixture.commit;
import static io.cairn.spark.StoreFixture.key;
import static io.cairn.spark.StoreFixture.metric;
import static io.cairn.spark.StoreFixture.text;
import static io.cairn.spark.StoreFixture.value;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.LongStream;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;

/** A batch that is larger than the state cache, and the batches after it, with a real worker. */
class CacheRefillTest {
  private static final long KEYS = 20_000;
  private static final long OVERSIZED_KEYS = 200_000;

  /** More than a session reads at once. */
  private static final long MANY_KEYS = 150_000;

  private StoreFixture fixture;

  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture().withOwnWorker();
    fixture.settings.put(StoreFixture.CAIRN + "cacheMemory", "8m");
  }

  @AfterEach
  void close() throws IOException {
    fixture.close();
  }

  /** Writes more than fits into the cache, and removes it again. */
  private static Option<String> commitOversized(
      CairnStateStoreProvider provider, long version, Option<String> id) {
    StateStore store = provider.getStore(version, id, false, false);
    for (long key = KEYS; key < OVERSIZED_KEYS; key++) {
      store.put(key(key), value("large" + key), "default");
    }
    for (long key = KEYS; key < OVERSIZED_KEYS; key++) {
      store.remove(key(key), "default");
    }
    store.commit();
    assertTrue(metric(store, "cairnSpills") > 0);
    assertEquals(KEYS, store.metrics().numKeys());
    return store.getStateStoreCheckpointInfo().stateStoreCkptId();
  }

  private static Map<Long, String> expected() {
    Map<Long, String> rows = new TreeMap<>();
    LongStream.range(0, KEYS).forEach(key -> rows.put(key, "v" + key + "@1"));
    return rows;
  }

  /** One large batch would make all later ones slow, until a restart. */
  @Test
  void theSecondBatchThatFitsReadsNothingFromTheWorker() {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commit(provider, 0, NO_ID, LongStream.range(0, KEYS).toArray());
    id = commitOversized(provider, 1, id);
    StateStore first = provider.getStore(2, id, false, false);
    assertEquals("v7@1", text(first.get(key(7), "default")));
    first.put(key(7), value("changed"), "default");
    first.commit();

    StateStore second =
        provider.getStore(3, first.getStateStoreCheckpointInfo().stateStoreCkptId(), false, false);
    Map<Long, String> expected = expected();
    expected.put(7L, "changed");
    assertEquals(expected, all(second.iterator("default")));
    for (long key = 0; key < KEYS; key++) {
      assertEquals(expected.get(key), text(second.get(key(key), "default")));
      assertNull(second.get(key(KEYS + key), "default"));
    }
    second.commit();

    assertEquals(0, metric(second, "cairnCacheMisses"));
    assertEquals(1, metric(second, "cairnCompleteStores"));
    assertEquals(
        1, metric(first, "cairnCacheRefills") + metric(second, "cairnCacheRefills"), "refills");
  }

  /** A short query with a small cache must not slow a long one on the same executor. */
  @Test
  void queriesOfDifferentCacheMemoryHaveOneCacheEach() throws IOException {
    long[] keys = LongStream.range(0, KEYS).toArray();
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commit(provider, 0, NO_ID, keys);
    try (StoreFixture other = new StoreFixture().withOwnWorker().withLeastCache()) {
      CairnStateStoreProvider small = other.provider();
      StateStore filled = small.getStore(1, commit(small, 0, NO_ID, keys), false, false);
      assertEquals("v7@1", text(filled.get(key(7), "default")));
      filled.commit();
      assertEquals(0, metric(filled, "cairnCompleteStores"));
    }

    StateStore store = provider.getStore(1, id, false, false);
    assertEquals(expected(), all(store.iterator("default")));
    store.commit();

    assertEquals(1, metric(store, "cairnCompleteStores"));
    assertEquals(0, metric(store, "cairnCacheMisses"));
  }

  /** Lets the worker end when it reads a page that is not the first, once the file exists. */
  private void killWorkerAtASecondPage() throws IOException {
    fixture.patchEngine(
        """
import os
from cairn.store.front.instance import ProviderInstance
scan = ProviderInstance.scan
def killing(self, session, request):
    mark = '%s'
    if request.start is not None and os.path.exists(mark):
        os.unlink(mark)
        os.kill(os.getpid(), 9)
    return scan(self, session, request)
ProviderInstance.scan = killing
"""
            .formatted(fixture.folder.resolve("kill")));
  }

  /** The pages before and after the loss come from two databases. */
  @Test
  void aWorkerKilledDuringARefillCostsNoRow() throws Exception {
    killWorkerAtASecondPage();
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commit(provider, 0, NO_ID, LongStream.range(0, KEYS).toArray());
    Files.createFile(fixture.folder.resolve("kill"));
    id = commitOversized(provider, 1, id);

    StateStore first = provider.getStore(2, id, false, false);
    assertEquals(expected(), all(first.iterator("default")));
    first.put(key(7), value("changed"), "default");
    first.commit();
    StateStore second =
        provider.getStore(3, first.getStateStoreCheckpointInfo().stateStoreCkptId(), false, false);
    Map<Long, String> expected = expected();
    expected.put(7L, "changed");
    assertEquals(expected, all(second.iterator("default")));
    assertEquals(1, metric(second, "cairnCompleteStores"));
    second.abort();

    assertTrue(Files.notExists(fixture.folder.resolve("kill")), "no worker was killed");
  }

  /** A task that reads one key of a large state would wait for all of it, after each restart. */
  @Test
  void aSessionAfterALoadReadsTheStateOnlyIfItNeedsMuchOfIt() {
    fixture.settings.put(StoreFixture.CAIRN + "cacheMemory", "64m");
    Option<String> id = commit(fixture.provider(), 0, NO_ID, manyKeys());
    CairnStateStoreProvider provider = fixture.provider();
    StateStore first = provider.getStore(1, id, false, false);
    assertEquals("v7@1", text(first.get(key(7), "default")));
    assertNull(first.get(key(-1), "default"));
    first.put(key(7), value("changed"), "default");
    first.commit();
    assertEquals(2, metric(first, "cairnCacheMisses"));
    assertEquals(2, metric(first, "cairnRowsRead"));

    id = first.getStateStoreCheckpointInfo().stateStoreCkptId();
    StateStore store = provider.getStore(2, id, false, false);
    for (long key = 0; key < MANY_KEYS; key++) {
      assertEquals(key == 7 ? "changed" : "v" + key + "@1", text(store.get(key(key), "default")));
    }
    store.commit();

    assertTrue(metric(store, "cairnCacheMisses") < 1_000);
    assertEquals(1, metric(store, "cairnCompleteStores"));
  }

  /** The session has writes, and its rows come from two workers. */
  @Test
  void aWorkerKilledDuringTheRefillOfARunningSessionCostsNoRow() throws Exception {
    fixture.settings.put(StoreFixture.CAIRN + "cacheMemory", "64m");
    killWorkerAtASecondPage();
    Option<String> id = commit(fixture.provider(), 0, NO_ID, manyKeys());
    Map<Long, String> expected = new TreeMap<>();
    for (long key : manyKeys()) {
      expected.put(key, "v" + key + "@1");
    }
    StateStore store = fixture.provider().getStore(1, id, false, false);
    store.put(key(3), value("changed"), "default");
    store.put(key(-1), value("new"), "default");
    store.remove(key(5), "default");
    expected.put(3L, "changed");
    expected.put(-1L, "new");
    expected.remove(5L);
    Files.createFile(fixture.folder.resolve("kill"));

    for (long key = 0; key < 2_000; key++) {
      assertEquals(expected.get(key), text(store.get(key(key), "default")));
    }
    assertTrue(Files.notExists(fixture.folder.resolve("kill")), "no worker was killed");
    assertEquals(expected, all(store.iterator("default")));
    store.commit();

    assertTrue(metric(store, "cairnCacheMisses") < 1_000);
    assertEquals(1, metric(store, "cairnCompleteStores"));
    id = store.getStateStoreCheckpointInfo().stateStoreCkptId();
    StateStore again = fixture.provider().getStore(2, id, false, false);
    assertEquals(expected, all(again.iterator("default")));
    again.abort();
  }

  private static long[] manyKeys() {
    return LongStream.range(0, MANY_KEYS).toArray();
  }
}
