package io.cairn.spark;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.all;
import static io.cairn.spark.StoreFixture.commit;
import static io.cairn.spark.StoreFixture.key;
import static io.cairn.spark.StoreFixture.metric;
import static io.cairn.spark.StoreFixture.value;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.session.LoadGauges;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.conf.Configuration;
import org.apache.logging.log4j.Level;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangeDataReader;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;

/** Calls of the engine that take long: they end with the task that waits for them, or in time. */
class LongCallTest {
  private static final int VERSIONS = 12;

  /** Twice as long, because other programs run on this machine. */
  private static final long A_SECOND_MS = 2000;

  /** Half of the time that a cancelled commit waits for its outcome. */
  private static final long LESS_THAN_A_COMMIT_MS = 10_000;

  private static final long SECOND_NS = TimeUnit.SECONDS.toNanos(1);

  private StoreFixture fixture;
  private Path stuck;
  private Path slow;
  private Path isStuck;

  /**
   * While the file "slow" is there, a read of a changelog ends when the shim has asked seven times
   * for the result of the load: after about a second. While "stuck" is there, requests whose method
   * and name contain its text do not end; the first one creates "is-stuck".
   */
  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture().withOwnWorker();
    stuck = fixture.folder.resolve("stuck");
    slow = fixture.folder.resolve("slow");
    isStuck = fixture.folder.resolve("is-stuck");
    fixture.patchEngine(
        """
import os, threading, time
from cairn.checkpoint import transfers
from cairn.engine.control import ControlEntry
from cairn.storage.local import LocalStore
transfers.DOWNLOAD_THREADS = 1
stuck, slow, is_stuck = '%s', '%s', '%s'
asked = threading.Semaphore(0)
call = ControlEntry.call
def noted(self, method, arguments):
    if method == 'await':
        asked.release()
    return call(self, method, arguments)
ControlEntry.call = noted
def patch(name):
    original = getattr(LocalStore, name)
    def patched(self, key, *arguments, **named):
        if os.path.exists(slow) and name.startswith('get'):
            for _ in range(7):
                asked.acquire(timeout=30)
        while os.path.exists(stuck) and open(stuck).read() in name + ' ' + key:
            open(is_stuck, 'w').close()
            time.sleep(0.01)
        return original(self, key, *arguments, **named)
    setattr(LocalStore, name, patched)
for name in ('get', 'get_start', 'put', 'upload'):
    patch(name)
"""
            .formatted(stuck, slow, isStuck));
  }

  @AfterEach
  void close() throws IOException {
    Files.deleteIfExists(stuck);
    Files.deleteIfExists(slow);
    fixture.close();
  }

  private Option<String> versions(CairnStateStoreProvider provider, int count) {
    Option<String> id = NO_ID;
    for (int version = 0; version < count; version++) {
      id = commit(provider, version, id, version);
    }
    return id;
  }

  private static Map<Long, String> rows(StateStore store) {
    Map<Long, String> rows = all(store.iterator("default"));
    store.abort();
    return rows;
  }

  /** A task in a thread of its own. */
  private static final class Task {
    final CompletableFuture<Throwable> error = new CompletableFuture<>();
    volatile boolean wasInterrupted;
    final Thread thread;

    Task(Runnable work) {
      thread =
          new Thread(
              () -> {
                Throwable failure = null;
                try {
                  work.run();
                } catch (Throwable e) {
                  failure = e;
                }
                wasInterrupted = Thread.currentThread().isInterrupted();
                error.complete(failure);
              });
      thread.start();
    }

    /** Interrupts the task, as Spark does, and returns the error that it ends with in time. */
    String cancel(long limitMs) throws InterruptedException, ExecutionException, TimeoutException {
      thread.interrupt();
      Throwable failure = error.get(limitMs, TimeUnit.MILLISECONDS);
      assertTrue(wasInterrupted, "the interrupt was swallowed");
      return StoreFixture.chain(failure);
    }
  }

  private void awaitStuck() throws InterruptedException {
    Waits.until("a request that does not end", () -> Files.exists(isStuck));
  }

  /**
   * A large state must load, and the other stores of its worker must not be lost meanwhile. The log
   * says every ten seconds how far it is.
   */
  @Test
  void aLoadThatMovesHasNoTimeLimit() throws Exception {
    fixture.settings.put(StoreFixture.CAIRN + "requestTimeoutMs", "600");
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = versions(provider, VERSIONS);
    ProcessHandle worker = fixture.workers().get(0);
    Files.createFile(slow);
    long startedNs = System.nanoTime();

    try (LogOf log = new LogOf("io.cairn.spark.engine.ControlChannel", Level.INFO)) {
      Map<Long, String> loaded = rows(fixture.provider().getStore(VERSIONS, id, false, false));

      // Ten times requestTimeoutMs is the limit of silence.
      assertTrue(System.nanoTime() - startedNs > 10 * SECOND_NS, "it was too fast to show it");
      assertEquals(VERSIONS, loaded.size());
      assertEquals(worker, fixture.workers().get(0));
      assertEquals(VERSIONS, provider.latestVersion());
      String line = "store 0/0/default: the call load runs since 1\\d s and has .* changelogs?";
      assertTrue(log.lines.stream().anyMatch(one -> one.matches(line)), log.lines::toString);
    }
  }

  /** A load that hangs shows nowhere else: the progress has a batch when it has ended. */
  @Test
  void aLoadIsInTheGaugesUntilItEnds() throws Exception {
    Option<String> id = versions(fixture.provider(), 2);
    CairnStateStoreProvider other = fixture.provider();
    Files.writeString(stuck, "get");
    Task task = new Task(() -> rows(other.getStore(2, id, false, false)));
    awaitStuck();

    assertEquals(1, LoadGauges.runningLoads());

    Files.delete(stuck);
    assertEquals("", StoreFixture.chain(task.error.get(30, TimeUnit.SECONDS)));
    assertEquals(0, LoadGauges.runningLoads());
  }

  /** A load that never ends must not hold its task for ever, nor end the worker of other stores. */
  @Test
  void aLoadThatDoesNotMoveIsGivenUp() throws Exception {
    fixture.settings.put(StoreFixture.CAIRN + "requestTimeoutMs", "500");
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = versions(provider, 2);
    ProcessHandle worker = fixture.workers().get(0);
    Files.writeString(stuck, "get");

    Throwable error =
        assertThrows(Throwable.class, () -> fixture.provider().getStore(2, id, false, false));

    String text = StoreFixture.chain(error);
    assertTrue(text.contains("CAIRN_ENGINE_TIMEOUT"), text);
    assertTrue(text.contains("finished nothing for 5000 ms"), text);
    assertEquals(worker, fixture.workers().get(0));
    commit(provider, 2, id, 9);
  }

  /** A storage that hangs must not hold a task slot: the user has stopped the query. */
  @Test
  void aCancelledLoadIsGivenUpWithinASecond() throws Exception {
    Option<String> id = versions(fixture.provider(), 2);
    CairnStateStoreProvider other = fixture.provider();
    Files.writeString(stuck, "get");
    Task task = new Task(() -> other.getStore(2, id, false, false));
    awaitStuck();

    String error = task.cancel(A_SECOND_MS);

    assertTrue(error.contains("CAIRN_CANCELLED"), error);
    assertTrue(error.contains("store=0/0/default, version=2"), error);
    Files.delete(stuck);
    assertEquals(2, rows(other.getStore(2, id, false, false)).size());
  }

  /** Opens the change feed of the first version; its pages are still to be read. */
  private StateStoreChangeDataReader changeFeed() {
    Option<String> id = versions(fixture.provider(), 1);
    return fixture.provider().getStateStoreChangeDataReader(1, 1, Option.empty(), id);
  }

  /** A changelog may have gigabytes, and its first page comes after the download of all of it. */
  @Test
  void aPageOfChangesMayTakeLongerThanARead() throws Exception {
    fixture.settings.put(StoreFixture.CAIRN + "requestTimeoutMs", "500");
    fixture.patchEngine(
        """
import os, threading
from cairn.engine.control import ControlEntry
from cairn.storage.local import LocalStore
was_asked = threading.Event()
call, get = ControlEntry.call, LocalStore.get
def noted(self, method, arguments):
    if method == 'activity':
        was_asked.set()
    return call(self, method, arguments)
def late(self, *arguments, **named):
    if os.path.exists('%s'):
        was_asked.wait()
    return get(self, *arguments, **named)
ControlEntry.call, LocalStore.get = noted, late
"""
            .formatted(slow));
    StateStoreChangeDataReader changes = changeFeed();
    // From now on a download ends when the shim asks whether the worker moves: it does so after the
    // limit of a read.
    Files.createFile(slow);

    assertEquals(0, changes.next()._2().getLong(0));

    changes.close();
  }

  /** The user has stopped the job: unlike a commit, a read has no outcome that is worth a wait. */
  @Test
  void aCancelledReadOfChangesIsGivenUp() throws Exception {
    StateStoreChangeDataReader changes = changeFeed();
    Files.writeString(stuck, "get changelog/1_");
    Task task = new Task(changes::next);
    awaitStuck();

    String error = task.cancel(LESS_THAN_A_COMMIT_MS);

    assertTrue(error.contains("the task was cancelled during a read of changes"), error);
    changes.close();
  }

  /** A stopped worker does not even answer that it still works. */
  @Test
  void aTaskThatWaitsForAStoppedWorkerIsGivenUpWithinASecond() throws Exception {
    Option<String> id = versions(fixture.provider(), 2);
    CairnStateStoreProvider other = fixture.provider();
    fixture.signalWorker("STOP");
    Task task = new Task(() -> other.getStore(2, id, false, false));
    Waits.untilIn(task.thread, "Cancellation", "await");

    String error = task.cancel(A_SECOND_MS);

    assertTrue(error.contains("CAIRN_CANCELLED"), error);
    fixture.signalWorker("CONT");
    assertEquals(2, rows(other.getStore(2, id, false, false)).size());
  }

  /** The outcome of a commit is worth a wait, but not one without an end. */
  @Test
  void aCancelledCommitIsSettledWithinThirtySeconds() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = versions(provider, 1);
    StateStore store = provider.getStore(1, id, false, false);
    store.put(key(7), value("unknown"), "default");
    Files.writeString(stuck, "put changelog/2_");
    Task task = new Task(store::commit);
    awaitStuck();
    long startedNs = System.nanoTime();

    String error = task.cancel(30_000);

    assertTrue(System.nanoTime() - startedNs > 5 * SECOND_NS, "it did not wait for the outcome");
    assertTrue(error.contains("CAIRN_CANCELLED"), error);
    store.abort();
    Files.delete(stuck);
    // The attempt's object may exist by now: it has a name of its own.
    CairnStateStoreProvider other = fixture.provider();
    Option<String> again = commit(other, 1, id, 8);
    assertEquals(Map.of(0L, "v0@1", 8L, "v8@2"), rows(other.getStore(2, again, false, false)));
  }

  /** A stopped worker takes no more writes: the task waits while it sends them. */
  @Test
  void aTaskThatSendsToAStoppedWorkerIsGivenUpWithinThirtySeconds() throws Exception {
    fixture.withLeastCache();
    CairnStateStoreProvider provider = fixture.provider();
    StateStore store = provider.getStore(0, NO_ID, false, false);
    store.put(key(-1), value("first"), "default");
    fixture.signalWorker("STOP");
    String large = "x".repeat(1000);
    Task task =
        new Task(
            () -> {
              for (long key = 0; key < 50_000; key++) {
                store.put(key(key), value(large), "default");
              }
            });
    Waits.untilIn(task.thread, "DataChannel", "await");

    String error = task.cancel(30_000);

    assertTrue(error.contains("CAIRN_CANCELLED"), error);
    fixture.killWorkers();
    store.abort();
  }

  /** Spark ends its maintenance threads by interrupts, and waits for them. */
  @Test
  void aCancelledMaintenanceIsGivenUpWithinASecond() throws Exception {
    fixture.settings.put("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1");
    CairnStateStoreProvider provider = fixture.provider();
    versions(provider, 2);
    Files.writeString(stuck, "upload");
    Task task = new Task(provider::doMaintenance);
    awaitStuck();
    assertTrue(task.thread.isAlive());

    String error = task.cancel(A_SECOND_MS);

    assertEquals("", error);
  }

  /** The first snapshot of a large state takes hours: a dashboard shows whether it moves. */
  @Test
  void aCommitReportsWhatARunningSnapshotHasStillToUpload() throws Exception {
    fixture.settings.put("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1");
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = versions(provider, 2);
    Files.writeString(stuck, "upload");
    Task task = new Task(provider::doMaintenance);
    awaitStuck();

    StateStore during = provider.getStore(2, id, false, false);
    during.put(key(7), value("during"), "default");
    during.commit();

    long left = metric(during, "cairnSnapshotBytesLeft");
    assertTrue(left > 0, "left: " + left);
    Files.delete(stuck);
    assertEquals("", StoreFixture.chain(task.error.get(30, TimeUnit.SECONDS)));
    StateStore after =
        provider.getStore(3, during.getStateStoreCheckpointInfo().stateStoreCkptId(), false, false);
    after.put(key(8), value("after"), "default");
    after.commit();
    assertEquals(0, metric(after, "cairnSnapshotBytesLeft"));
  }

  /** Spark closes a provider under a lock that all stores need, and maintenance must not wait. */
  @Test
  void whileAWorkerStartsNeitherMaintenanceNorTheEndOfAStoreWaits() throws Exception {
    Path slowStart = fixture.folder.resolve("slow-start");
    fixture.patchEngine(
        "import os, time\nwhile os.path.exists('%s'): time.sleep(0.01)\n".formatted(slowStart));
    Files.createFile(slowStart);
    CairnStateStoreProvider provider = fixture.provider();
    CairnStateStoreProvider closed = fixture.provider();
    Task task = new Task(() -> provider.getStore(0, NO_ID, false, false));
    Task second = new Task(() -> closed.getStore(0, NO_ID, false, false).abort());
    Waits.untilIn(task.thread, "Cancellation", "await");
    Waits.untilIn(second.thread, "Cancellation", "await");
    long startedNs = System.nanoTime();

    provider.doMaintenance();
    closed.doMaintenance();
    closed.close();

    assertTrue(System.nanoTime() - startedNs < 2 * SECOND_NS, "it waited for the worker");
    assertTrue(task.cancel(A_SECOND_MS).contains("CAIRN_CANCELLED"));
    Files.delete(slowStart);
    // A session that was opened before ends first.
    assertEquals("", StoreFixture.chain(second.error.get(30, TimeUnit.SECONDS)));
    commit(provider, 0, NO_ID, 1);
    assertEquals(1, fixture.workers().size());
  }

  /** Spark calls init under a lock of all stores; a secret may be on another machine. */
  @Test
  void initReadsNoSecretAndCopiesNoConfiguration() {
    List<String> read = new ArrayList<>();
    Configuration hadoop =
        new Configuration(false) {
          @Override
          public char[] getPassword(String name) {
            read.add(name);
            throw new IllegalStateException("a secret is read");
          }
        };
    hadoop.set("fs.s3a.access.key", "key");
    hadoop.set("fs.s3a.secret.key", "secret");

    CairnStateStoreProvider provider = fixture.provider("s3a://bucket/state", hadoop);

    assertEquals(List.of(), read);
    // A copy would have Hadoop's own method.
    assertThrows(Throwable.class, () -> provider.getStore(0, NO_ID, false, false));
    assertFalse(read.isEmpty());
  }
}
