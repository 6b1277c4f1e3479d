package io.cairn.spark;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.commit;
import static io.cairn.spark.StoreFixture.key;
import static io.cairn.spark.StoreFixture.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.LongStream;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;

/**
 * Row calls on one thread and the end of the session on another, as with PySpark's
 * transformWithState.
 */
class TwoThreadsTest {
  private static final long KEYS = 40_000;

  private StoreFixture fixture;
  private CairnStateStoreProvider provider;
  private Option<String> id;

  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture().withOwnWorker().withLeastCache();
    provider = fixture.provider();
    id = commit(provider, 0, NO_ID, LongStream.range(0, KEYS).toArray());
  }

  @AfterEach
  void close() throws IOException {
    fixture.close();
  }

  /**
   * The end of a task does not wait for the thread that serves its Python worker. The next session
   * must not receive the channel, and thereby the reply, of that thread.
   */
  @Test
  void theEndOfASessionWaitsForARowCallOnAnotherThread() throws Exception {
    StateStore first = provider.getStore(1, id, false, false);
    first.get(key(KEYS + 1), "default");
    fixture.signalWorker("STOP");
    CompletableFuture<String> read = new CompletableFuture<>();
    Thread reader =
        new Thread(
            () -> {
              try {
                read.complete(text(first.get(key(0), "default")));
              } catch (Throwable e) {
                read.completeExceptionally(e);
              }
            });
    reader.start();
    Waits.untilIn(reader, "DataChannel", "receive");
    CompletableFuture<StateStore> next = new CompletableFuture<>();
    Thread ending =
        new Thread(
            () -> {
              first.abort();
              next.complete(provider.getStore(1, id, false, false));
            });
    ending.start();
    Waits.untilIn(ending, "AbstractQueuedSynchronizer", "acquire");

    assertFalse(next.isDone(), "the next session began while a row call ran");
    fixture.signalWorker("CONT");

    assertEquals("v0@1", read.get(30, TimeUnit.SECONDS));
    StateStore second = next.get(30, TimeUnit.SECONDS);
    for (long key = 0; key < KEYS; key += 97) {
      assertEquals("v" + key + "@1", text(second.get(key(key), "default")));
    }
    second.abort();
  }

  /** The same with row calls on the thread that opened the session. */
  @Test
  void anEndOnAnotherThreadWaitsForARowCallOfTheTasksThread() throws Exception {
    CompletableFuture<StateStore> opened = new CompletableFuture<>();
    CompletableFuture<Void> isStopped = new CompletableFuture<>();
    CompletableFuture<String> read = new CompletableFuture<>();
    Thread task =
        new Thread(
            () -> {
              StateStore store = provider.getStore(1, id, false, false);
              store.get(key(KEYS + 1), "default");
              opened.complete(store);
              isStopped.join();
              read.complete(text(store.get(key(0), "default")));
            });
    task.start();
    StateStore store = opened.get(30, TimeUnit.SECONDS);
    fixture.signalWorker("STOP");
    isStopped.complete(null);
    Waits.untilIn(task, "DataChannel", "receive");
    CompletableFuture<Void> ended = new CompletableFuture<>();
    Thread ending =
        new Thread(
            () -> {
              store.abort();
              ended.complete(null);
            });
    ending.start();
    Waits.untilIn(ending, "AbstractQueuedSynchronizer", "acquire");

    assertFalse(ended.isDone(), "the session ended while a row call ran");
    fixture.signalWorker("CONT");

    assertEquals("v0@1", read.get(30, TimeUnit.SECONDS));
    ended.get(30, TimeUnit.SECONDS);
    provider.getStore(1, id, false, false).abort();
  }

  /** A scan on another thread returns no row after the end of its session. */
  @Test
  void aScanOfAnEndedSessionIsRefused() {
    StateStore first = provider.getStore(1, id, false, false);
    StateStoreIterator<UnsafeRowPair> rows = first.iterator("default");
    assertTrue(rows.hasNext());
    rows.next();

    first.abort();
    StateStore second = provider.getStore(1, id, false, false);

    Throwable error = assertThrows(Throwable.class, rows::hasNext);
    assertTrue(StoreFixture.chain(error).contains("after the store was aborted"));
    rows.close();
    assertEquals("v7@1", text(second.get(key(7), "default")));
    second.abort();
  }
}
