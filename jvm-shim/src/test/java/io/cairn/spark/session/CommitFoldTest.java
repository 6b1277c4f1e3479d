package io.cairn.spark.session;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.CairnStateStoreProvider;
import io.cairn.spark.LogOf;
import io.cairn.spark.StoreFixture;
import io.cairn.spark.Waits;
import io.cairn.spark.cache.CacheSession;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
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
  private final CountDownLatch areFree = new CountDownLatch(1);

  @BeforeEach
  void setUp() throws Exception {
    fixture = new StoreFixture();
  }

  @AfterEach
  void tearDown() throws Exception {
    areFree.countDown();
    fixture.close();
  }

  /** Makes every thread for folds wait until {@link #areFree}. */
  private void occupyThreads() throws Exception {
    occupyThreads(areFree);
  }

  private static void occupyThreads(CountDownLatch until) throws Exception {
    int count = Runtime.getRuntime().availableProcessors();
    CountDownLatch areBusy = new CountDownLatch(count);
    for (int i = 0; i < count; i++) {
      FoldThreads.execute(
          () -> {
            areBusy.countDown();
            awaitUnchecked(until);
          });
    }
    assertTrue(areBusy.await(10, TimeUnit.SECONDS));
  }

  private static void awaitUnchecked(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  @Test
  void aCommitReturnsBeforeItsFoldAndTheNextSessionWaitsForIt() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> first = StoreFixture.commit(provider, 0, StoreFixture.NO_ID, 3, 5_000);
    occupyThreads();

    Option<String> second = StoreFixture.commit(provider, 1, first, KEYS);
    CompletableFuture<List<String>> read = new CompletableFuture<>();
    Thread task =
        new Thread(() -> read.complete(StoreFixture.read(provider, 2, second, SOME)), "read");
    task.start();

    Waits.untilIn(task, "Semaphore", "tryAcquire");
    assertFalse(read.isDone());
    areFree.countDown();
    assertEquals(List.of("v3@2", "v4999@2", "v5000@1"), read.get(20, TimeUnit.SECONDS));
  }

  @Test
  void aProviderCanBeClosedBeforeTheFold() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    occupyThreads();
    Option<String> id = StoreFixture.commit(provider, 0, StoreFixture.NO_ID, KEYS);

    provider.close();
    areFree.countDown();

    assertEquals(List.of("v3@1"), StoreFixture.read(fixture.provider(), 1, id, 3));
  }

  /** Else the stores of all queries would stay locked while the worker of this one is slow. */
  @Test
  void aCloseThatWaitsForTheWorkerKeepsNoThreadForFolds() throws Exception {
    fixture.withOwnWorker();
    Path closing = fixture.folder.resolve("closing");
    Path mayClose = fixture.folder.resolve("may-close");
    fixture.runWorkersBy(
        """
        #!%s
        import os, runpy, time
        from cairn.store.front.instance import ProviderInstance
        close = ProviderInstance.close
        def waiting(self, *args, **kwargs):
            open('%s', 'w').close()
            while not os.path.exists('%s'):
                time.sleep(0.01)
            return close(self, *args, **kwargs)
        ProviderInstance.close = waiting
        runpy.run_module('cairn.engine', run_name='__main__')
        """
            .formatted(StoreFixture.PYTHON, closing, mayClose));
    CairnStateStoreProvider provider = fixture.provider();
    CountDownLatch isClosed = new CountDownLatch(1);
    occupyThreads(isClosed);
    StoreFixture.commit(provider, 0, StoreFixture.NO_ID, 3);
    provider.close();
    isClosed.countDown();
    Waits.until("the close of the store", () -> Files.exists(closing));

    occupyThreads(areFree);

    Files.createFile(mayClose);
  }

  /** The version is durable: the task must not fail, and the next session loads. */
  @Test
  void aFoldThatFailsAfterTheCommitCostsALoad() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> first = StoreFixture.commit(provider, 0, StoreFixture.NO_ID, 3, 5_000);
    StateStore store = provider.getStore(1, first, false, false);
    StoreFixture.put(store, 2, KEYS);
    occupyThreads();
    store.commit();
    session(store).cache.abort();

    areFree.countDown();

    Option<String> second = store.getStateStoreCheckpointInfo().stateStoreCkptId();
    List<String> values = StoreFixture.read(provider, 2, second, SOME);
    assertEquals(List.of("v3@2", "v4999@2", "v5000@1"), values);
  }

  /** The version is durable: the task must not fail. */
  @Test
  void aFoldThatFailsCostsALoad() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> first = StoreFixture.commit(provider, 0, StoreFixture.NO_ID, 1, 5_000);
    StateStore store = provider.getStore(1, first, false, false);
    StoreFixture.put(store, 2, 0, 1, 2);
    failFold(session(store).cache);

    try (LogOf log = new LogOf(StoreSession.class.getName(), Level.WARN)) {
      assertEquals(2, store.commit());

      Option<String> second = store.getStateStoreCheckpointInfo().stateStoreCkptId();
      assertEquals(List.of("v1@2", "v5000@1"), StoreFixture.read(provider, 2, second, 1, 5_000));
      assertEquals(1, log.lines.size(), log.lines.toString());
      assertTrue(log.lines.get(0).contains("version 2 is committed"), log.lines.get(0));
    }
  }

  /** Lets the first step of the fold fail that is none of sending. */
  private static void failFold(CacheSession cache) throws ReflectiveOperationException {
    AtomicBoolean areSent = new AtomicBoolean();
    List<Integer> dropped =
        new ArrayList<>() {
          private static final long serialVersionUID = 1;

          @Override
          public void forEach(Consumer<? super Integer> action) {
            if (areSent.getAndSet(true)) {
              throw new OutOfMemoryError("in the fold");
            }
          }
        };
    set(cache, "droppedFamilies", dropped);
  }

  private static StoreSession session(StateStore store) throws ReflectiveOperationException {
    Field session = store.getClass().getDeclaredField("session");
    session.setAccessible(true);
    return (StoreSession) session.get(store);
  }

  private static void set(Object of, String name, Object value)
      throws ReflectiveOperationException {
    Field field = of.getClass().getDeclaredField(name);
    field.setAccessible(true);
    field.set(of, value);
  }

  /** An abort would empty the cache while another thread folds into it. */
  @Test
  void aSessionWhoseVersionIsDurableEndsAsCommitted() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> first = StoreFixture.commit(provider, 0, StoreFixture.NO_ID, 3, 5_000);
    StateStore store = provider.getStore(1, first, false, false);
    StoreFixture.put(store, 2, KEYS);
    set(session(store).store, "snapshots", null);
    occupyThreads();

    assertThrows(Throwable.class, store::commit);
    store.abort();
    areFree.countDown();

    Option<String> second = store.getStateStoreCheckpointInfo().stateStoreCkptId();
    List<String> values = StoreFixture.read(fixture.provider(), 2, second, SOME);
    assertEquals(List.of("v3@2", "v4999@2", "v5000@1"), values);
  }
}
