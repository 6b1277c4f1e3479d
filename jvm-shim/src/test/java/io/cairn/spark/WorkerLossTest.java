package io.cairn.spark;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.all;
import static io.cairn.spark.StoreFixture.commit;
import static io.cairn.spark.StoreFixture.key;
import static io.cairn.spark.StoreFixture.metric;
import static io.cairn.spark.StoreFixture.text;
import static io.cairn.spark.StoreFixture.value;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.LongStream;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import scala.Option;

/** A worker is killed, or a task interrupted, while a session runs. */
class WorkerLossTest {
  private static final long KEYS = 20_000;

  private StoreFixture fixture;

  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture().withOwnWorker().withLeastCache();
  }

  @AfterEach
  void close() throws IOException {
    fixture.close();
  }

  private Option<String> large(CairnStateStoreProvider provider) {
    return commit(provider, 0, NO_ID, LongStream.range(0, KEYS).toArray());
  }

  /**
   * A session that has sent nothing survives the loss of its worker: in local mode one failed task
   * would end the query.
   */
  @Test
  void aSessionContinuesToReadAfterItsWorkerWasKilled() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = large(provider);
    StateStore store = provider.getStore(1, id, false, false);
    store.put(key(KEYS), value("mine"), "default");
    assertEquals("v1@1", text(store.get(key(1), "default")));

    fixture.killWorkers();

    for (long key = 0; key < KEYS; key += 499) {
      assertEquals("v" + key + "@1", text(store.get(key(key), "default")));
    }
    assertEquals(2, store.commit());
    StateStore read =
        provider.getReadStore(2, store.getStateStoreCheckpointInfo().stateStoreCkptId());
    assertEquals("mine", text(read.get(key(KEYS), "default")));
    assertEquals(KEYS + 1, read.metrics().numKeys());
    read.release();
  }

  /** If the cache answers all reads, the commit is the first to notice that the worker is gone. */
  @Test
  void aSessionCommitsAfterItsWorkerWasKilled() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commit(provider, 0, NO_ID, 1, 2);
    StateStore store = provider.getStore(1, id, false, false);
    store.put(key(3), value("mine"), "default");

    fixture.killWorkers();
    assertEquals(2, store.commit());

    StateStore read =
        fixture.provider().getReadStore(2, store.getStateStoreCheckpointInfo().stateStoreCkptId());
    assertEquals(Map.of(1L, "v1@1", 2L, "v2@1", 3L, "mine"), all(read.iterator("default")));
    read.release();
  }

  /** The page that was requested ahead is lost with the worker, and is requested again. */
  @Test
  void aScanContinuesAfterItsWorkerWasKilled() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    StateStore store = provider.getStore(1, large(provider), false, false);
    StateStoreIterator<UnsafeRowPair> rows = store.iterator("default");
    Set<Long> seen = new HashSet<>();

    while (rows.hasNext()) {
      assertTrue(seen.add(rows.next().key().getLong(0)));
      if (seen.size() == 10) {
        fixture.killWorkers();
      } else if (seen.size() % 5_000 == 0) {
        assertEquals("v77@1", text(store.get(key(77), "default")));
      }
    }

    assertEquals(KEYS, seen.size());
    assertEquals(2, store.commit());
  }

  /** Spilled writes are sent to the next worker, and read from there. */
  @Test
  void aSessionThatSpilledALittleContinues() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    StateStore store = provider.getStore(0, NO_ID, false, false);
    for (long key = 0; key < KEYS; key++) {
      store.put(key(key), value("v" + key), "default");
    }

    fixture.killWorkers();

    for (long key = 0; key < KEYS; key += 499) {
      assertEquals("v" + key, text(store.get(key(key), "default")));
    }
    store.put(key(KEYS), value("last"), "default");
    assertEquals(1, store.commit());
    StateStore read =
        fixture.provider().getReadStore(1, store.getStateStoreCheckpointInfo().stateStoreCkptId());
    assertEquals(KEYS + 1, all(read.iterator("default")).size());
    assertEquals(KEYS + 1, read.metrics().numKeys());
    read.release();
  }

  /**
   * A session that spilled more than the bound of the copies fails and creates no version; a retry
   * of the task succeeds.
   */
  @Test
  void aSessionThatSpilledMuchFailsAndIsRetried() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    StateStore store = provider.getStore(0, NO_ID, false, false);
    putLarge(store, KEYS);

    fixture.killWorkers();
    Throwable error = assertThrows(Throwable.class, store::commit);
    store.abort();

    assertTrue(
        StoreFixture.chain(error).contains("[CAIRN_WORKER_LOST]"), StoreFixture.chain(error));
    assertEquals(List.of(), fixture.objects("changelog"));
    commit(provider, 0, NO_ID, 1);
  }

  /** Kills the first worker in its first commit: before the version is durable, or after. */
  private void killInCommit(boolean isDurable) throws IOException {
    fixture.patchEngine(
        """
import os, signal
from cairn.store.front.instance import ProviderInstance
commit = ProviderInstance.commit
def dying(self, request, reply):
    if os.path.exists('%s'):
        return commit(self, request, reply)
    open('%<s', 'w').close()
    if %s:
        commit(self, request)
    os.kill(os.getpid(), signal.SIGKILL)
ProviderInstance.commit = dying
"""
            .formatted(fixture.folder.resolve("killed"), isDurable ? "True" : "False"));
  }

  private static void putLarge(StateStore store, long keys) {
    String large = "x".repeat(1000);
    for (long key = 0; key < keys; key++) {
      store.put(key(key), value(large), "default");
    }
  }

  /**
   * The spill is sent again from its copy and the rest from the write buffer, even if both together
   * are larger than the bound of the copies.
   */
  @Test
  void aSessionThatSpilledSurvivesItsWorkerInTheCommit() throws Exception {
    fixture.settings.put(StoreFixture.CAIRN + "cacheMemory", "8m");
    killInCommit(false);
    StateStore store = fixture.provider().getStore(0, NO_ID, false, false);
    putLarge(store, 12_000);
    store.remove(key(0), "default");

    assertEquals(1, store.commit());

    assertTrue(Files.exists(fixture.folder.resolve("killed")));
    assertEquals(1, metric(store, "cairnSpills"));
    StateStore read =
        fixture.provider().getReadStore(1, store.getStateStoreCheckpointInfo().stateStoreCkptId());
    assertEquals(11_999, all(read.iterator("default")).size());
    assertEquals(11_999, read.metrics().numKeys());
    read.release();
  }

  /**
   * The commit is repeated, perhaps after its version became durable: the repetition replaces it.
   * The few writes were folded into the cache meanwhile, and the cache has them once.
   */
  @ParameterizedTest
  @CsvSource({"1, false", "1, true", "2, false", "2, true"})
  void aCommitWithoutAReplyHappensOnce(String checkpointFormat, boolean isDurable)
      throws Exception {
    fixture.settings.put(
        "spark.sql.streaming.stateStore.checkpointFormatVersion", checkpointFormat);
    killInCommit(isDurable);
    CairnStateStoreProvider provider = fixture.provider();
    StateStore store = provider.getStore(0, NO_ID, false, false);
    store.put(key(1), value("mine"), "default");
    store.put(key(2), value("gone"), "default");
    store.remove(key(2), "default");

    assertEquals(1, store.commit());

    assertTrue(Files.exists(fixture.folder.resolve("killed")));
    Option<String> id = store.getStateStoreCheckpointInfo().stateStoreCkptId();
    assertEquals(checkpointFormat.equals("2"), id.isDefined());
    for (CairnStateStoreProvider reader : List.of(provider, fixture.provider())) {
      StateStore read = reader.getReadStore(1, id);
      assertEquals(Map.of(1L, "mine"), all(read.iterator("default")));
      assertEquals(1, read.metrics().numKeys());
      read.release();
    }
  }

  /** The engine refuses a commit whose writes the cache already has: the cache drops them. */
  @Test
  void aRefusedCommitLeavesNoWritesInTheCache() throws Exception {
    fixture.patchEngine(
        """
import os
from cairn.errors import UnavailableError
from cairn.store.front.instance import ProviderInstance
commit = ProviderInstance.commit
def refusing(self, request, reply):
    if request.version == 2 and not os.path.exists('%s'):
        open('%<s', 'w').close()
        raise UnavailableError('refused by the test')
    return commit(self, request, reply)
ProviderInstance.commit = refusing
"""
            .formatted(fixture.folder.resolve("refused")));
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> one = commit(provider, 0, NO_ID, 1);
    StateStore refused = provider.getStore(1, one, false, false);
    refused.put(key(1), value("refused"), "default");
    refused.put(key(2), value("refused"), "default");

    Throwable error = assertThrows(Throwable.class, refused::commit);

    refused.abort();
    assertTrue(
        StoreFixture.chain(error).contains("refused by the test"), StoreFixture.chain(error));
    StateStore next = provider.getStore(1, one, false, false);
    assertEquals(Map.of(1L, "v1@1"), all(next.iterator("default")));
    next.put(key(3), value("next"), "default");
    assertEquals(2, next.commit());
    Option<String> two = next.getStateStoreCheckpointInfo().stateStoreCkptId();
    for (CairnStateStoreProvider reader : List.of(provider, fixture.provider())) {
      StateStore read = reader.getReadStore(2, two);
      assertEquals(Map.of(1L, "v1@1", 3L, "next"), all(read.iterator("default")));
      assertEquals(2, read.metrics().numKeys());
      read.release();
    }
  }

  /**
   * The cache already has the writes when the worker is lost: they are sent again to the next one,
   * and the cache has them once.
   */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void aSessionThatIsFoldedDuringItsCommitSurvivesItsWorker(boolean isDurable) throws Exception {
    fixture.settings.put(StoreFixture.CAIRN + "cacheMemory", "200m");
    killInCommit(isDurable);
    CairnStateStoreProvider provider = fixture.provider();
    StateStore store = provider.getStore(0, NO_ID, false, false);
    for (long key = 0; key < KEYS; key++) {
      store.put(key(key), value("v" + key), "default");
    }

    assertEquals(1, store.commit());

    assertTrue(Files.exists(fixture.folder.resolve("killed")));
    Option<String> id = store.getStateStoreCheckpointInfo().stateStoreCkptId();
    for (CairnStateStoreProvider reader : List.of(provider, fixture.provider())) {
      StateStore read = reader.getReadStore(1, id);
      Map<Long, String> rows = all(read.iterator("default"));
      assertEquals(KEYS, rows.size());
      rows.forEach((key, text) -> assertEquals("v" + key, text));
      assertEquals(KEYS, read.metrics().numKeys());
      read.release();
    }
  }

  /** Writes that were not spilled are sent again from the write buffer, whatever their size. */
  @Test
  void aLargeSessionThatSpilledNothingCommitsElsewhere() throws Exception {
    fixture.settings.put(StoreFixture.CAIRN + "cacheMemory", "200m");
    killInCommit(false);
    StateStore store = fixture.provider().getStore(0, NO_ID, false, false);
    putLarge(store, KEYS);

    assertEquals(1, store.commit());

    assertTrue(Files.exists(fixture.folder.resolve("killed")));
    assertEquals(0, metric(store, "cairnSpills"));
    StateStore read =
        fixture.provider().getReadStore(1, store.getStateStoreCheckpointInfo().stateStoreCkptId());
    assertEquals(KEYS, read.metrics().numKeys());
    read.release();
  }

  /** A worker that dies between two batches fails no task. */
  @Test
  void aWorkerKilledBetweenBatchesIsReplaced() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> one = commit(provider, 0, NO_ID, 1);

    fixture.killWorkers();
    Option<String> two = commit(provider, 1, one, 2);

    StateStore read = provider.getReadStore(2, two);
    assertEquals(Map.of(1L, "v1@1", 2L, "v2@2"), all(read.iterator("default")));
    read.release();
  }

  /**
   * Spark interrupts a task while its store waits for the engine: the channel must stay usable, and
   * the flag set.
   */
  @Test
  void anInterruptInsideAReadKeepsTheChannelAndTheFlag() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = large(provider);
    StateStore store = provider.getStore(1, id, false, false);
    Map<Long, String> wrong = new TreeMap<>();
    boolean[] flag = new boolean[1];
    Thread task =
        new Thread(
            () -> {
              Thread.currentThread().interrupt();
              for (long key = 0; key < KEYS; key += 311) {
                String found = text(store.get(key(key), "default"));
                if (!("v" + key + "@1").equals(found)) {
                  wrong.put(key, found);
                }
              }
              flag[0] = Thread.currentThread().isInterrupted();
            });
    task.start();
    while (task.isAlive()) {
      task.interrupt();
      task.join(5);
    }

    assertEquals(Map.of(), wrong);
    assertTrue(flag[0], "the interrupt was swallowed");
    store.abort();
    assertTrue(metric(store, "cairnCacheMisses") > 0);
  }

  /**
   * The listener of a cancelled task runs with the interrupt flag set, and must still release the
   * store.
   */
  @Test
  void anInterruptBeforeAbortStillReleasesTheStore() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = large(provider);
    StateStore store = provider.getStore(1, id, false, false);
    for (long key = 0; key < KEYS; key++) {
      store.put(key(key), value("dirty".repeat(10)), "default");
    }
    boolean[] flag = new boolean[1];

    Thread listener =
        new Thread(
            () -> {
              Thread.currentThread().interrupt();
              store.abort();
              flag[0] = Thread.currentThread().isInterrupted();
            });
    listener.start();
    listener.join();

    assertTrue(flag[0], "the interrupt was swallowed");
    StateStore next = provider.getStore(1, id, false, false);
    assertEquals("v5@1", text(next.get(key(5), "default")));
    assertEquals(KEYS, all(next.iterator("default")).size());
    next.abort();
  }

  /** An interrupt does not break a commit, also if it is folded meanwhile. */
  @ParameterizedTest
  @ValueSource(strings = {"1m", "200m"})
  void anInterruptBeforeCommitDoesNotBreakIt(String cacheMemory) throws Exception {
    fixture.settings.put(StoreFixture.CAIRN + "cacheMemory", cacheMemory);
    CairnStateStoreProvider provider = fixture.provider();
    StateStore store = provider.getStore(0, NO_ID, false, false);
    for (long key = 0; key < KEYS; key++) {
      store.put(key(key), value("v"), "default");
    }

    Thread.currentThread().interrupt();
    long version = store.commit();

    assertTrue(Thread.interrupted(), "the interrupt was swallowed");
    assertEquals(1, version);
    StateStore read =
        fixture.provider().getReadStore(1, store.getStateStoreCheckpointInfo().stateStoreCkptId());
    assertEquals(KEYS, all(read.iterator("default")).size());
    read.release();
  }
}
