package io.cairn.spark.session;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.CairnStateStoreProvider;
import io.cairn.spark.LogOf;
import io.cairn.spark.StoreFixture;
import io.cairn.spark.Waits;
import io.cairn.spark.cache.FoldStep;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.LongStream;
import org.apache.logging.log4j.Level;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;

class CommitFoldTest {
  private static final long[] KEYS = LongStream.range(0, 5_000).toArray();

  private static final long[] SOME = {3, 4_999, 5_000};

  private StoreFixture fixture;
  private final CountDownLatch mayFold = new CountDownLatch(1);

  @BeforeEach
  void setUp() throws Exception {
    fixture = new StoreFixture();
  }

  @AfterEach
  void tearDown() throws Exception {
    mayFold.countDown();
    fixture.close();
  }

  private void awaitMayFold() {
    try {
      mayFold.await();
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Commits; the fold waits for {@link #mayFold}. */
  private Option<String> commitWithoutFold(StateStore store) {
    atFold(store, this::awaitMayFold);
    store.commit();
    return store.getStateStoreCheckpointInfo().stateStoreCkptId();
  }

  /** Opens a version and puts keys into it. */
  private static StateStore written(
      CairnStateStoreProvider provider, long version, Option<String> id, long... keys) {
    StateStore store = provider.getStore(version, id, false, false);
    StoreFixture.put(store, version + 1, keys);
    return store;
  }

  @Test
  void aCommitReturnsBeforeItsFoldAndTheNextSessionWaitsForIt() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> first = StoreFixture.commit(provider, 0, StoreFixture.NO_ID, 3, 5_000);

    Option<String> second = commitWithoutFold(written(provider, 1, first, KEYS));
    CompletableFuture<List<String>> read = new CompletableFuture<>();
    Thread task =
        new Thread(() -> read.complete(StoreFixture.read(provider, 2, second, SOME)), "read");
    task.start();

    Waits.untilIn(task, "Semaphore", "tryAcquire");
    assertFalse(read.isDone());
    mayFold.countDown();
    assertEquals(List.of("v3@2", "v4999@2", "v5000@1"), read.get(20, TimeUnit.SECONDS));
  }

  @Test
  void aProviderCanBeClosedBeforeTheFold() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commitWithoutFold(written(provider, 0, StoreFixture.NO_ID, KEYS));

    provider.close();
    mayFold.countDown();

    assertEquals(List.of("v3@1"), StoreFixture.read(fixture.provider(), 1, id, 3));
  }

  /** The thread of a fold also closes its store, which may wait for a worker that is stuck. */
  @Test
  void aStoreIsFreeWhileTheFoldsOfManyOthersAreHeld() {
    for (int i = 0; i < 4 * Runtime.getRuntime().availableProcessors(); i++) {
      FoldThreads.execute(this::awaitMayFold);
    }
    CairnStateStoreProvider provider = fixture.provider();

    Option<String> id = StoreFixture.commit(provider, 0, StoreFixture.NO_ID, 3);

    assertEquals(List.of("v3@1"), StoreFixture.read(provider, 1, id, 3));
  }

  /** The task that committed has ended, and its thread may be the one that waits. */
  @Test
  void theErrorOfAThreadThatWaitsInVainNamesTheFold() throws Exception {
    fixture.settings.put(StoreFixture.CAIRN + "lockTimeoutMs", "1000");
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commitWithoutFold(written(provider, 0, StoreFixture.NO_ID, 3));

    Throwable error = assertThrows(Throwable.class, () -> provider.getStore(1, id, false, false));

    String message = StoreFixture.chain(error);
    assertTrue(message.contains("not released within 1000 ms by cairn-fold"), message);
  }

  /** The version is durable: the task must not fail. */
  @Test
  void aFoldThatFailsCostsALoad() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> first = StoreFixture.commit(provider, 0, StoreFixture.NO_ID, 1, 5_000);
    StateStore store = written(provider, 1, first, 0, 1, 2);
    atFold(
        store,
        () -> {
          throw new OutOfMemoryError("in the fold");
        });

    try (LogOf log = new LogOf(StoreSession.class.getName(), Level.WARN)) {
      assertEquals(2, store.commit());

      Option<String> second = store.getStateStoreCheckpointInfo().stateStoreCkptId();
      assertEquals(List.of("v1@2", "v5000@1"), StoreFixture.read(provider, 2, second, 1, 5_000));
      assertEquals(1, log.lines.size(), log.lines.toString());
      assertTrue(log.lines.get(0).contains("version 2 is committed"), log.lines.get(0));
    }
  }

  private static void atFold(StateStore store, Runnable action) {
    FoldStep.run(StoreFixture.session(store).cache, action);
  }

  /** An abort would empty the cache while another thread folds into it. */
  @Test
  void aSessionWhoseVersionIsDurableEndsAsCommitted() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> first = StoreFixture.commit(provider, 0, StoreFixture.NO_ID, 3, 5_000);
    StateStore store = written(provider, 1, first, KEYS);
    StoreFixture.session(store).store.snapshots = null; // the commit fails behind its PUT
    atFold(store, this::awaitMayFold);

    assertThrows(Throwable.class, store::commit);
    store.abort();
    mayFold.countDown();

    Option<String> second = store.getStateStoreCheckpointInfo().stateStoreCkptId();
    List<String> values = StoreFixture.read(fixture.provider(), 2, second, SOME);
    assertEquals(List.of("v3@2", "v4999@2", "v5000@1"), values);
  }
}
