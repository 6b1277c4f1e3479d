package io.cairn.spark;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.all;
import static io.cairn.spark.StoreFixture.commit;
import static io.cairn.spark.StoreFixture.key;
import static io.cairn.spark.StoreFixture.text;
import static io.cairn.spark.StoreFixture.value;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.UnixOperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;

/** A worker that runs but fails: expired credentials, broken reads, no answer. */
class EngineTroubleTest {
  private static final int KEYS = 20_000;

  private StoreFixture fixture;

  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture().withOwnWorker();
  }

  @AfterEach
  void close() throws IOException {
    fixture.close();
  }

  private static Option<String> commitAll(CairnStateStoreProvider provider) {
    return commit(provider, 0, NO_ID, LongStream.range(0, KEYS).toArray());
  }

  private static void readAll(StateStore store) {
    for (long key = 0; key < KEYS; key++) {
      store.get(key(key), "default");
    }
  }

  private static Map<Long, String> rows(
      CairnStateStoreProvider provider, long version, Option<String> id) {
    StateStore store = provider.getReadStore(version, id);
    Map<Long, String> rows = all(store.iterator("default"));
    store.release();
    return rows;
  }

  /** Makes a method of the engine fail while the file that is returned is there. */
  private Path failWhileFull(String module, String type, String method) throws IOException {
    Path full = fixture.folder.resolve("full");
    fixture.patchEngine(
        """
        import os
        from cairn.errors import DiskFullError
        from %1$s import %2$s
        works = %2$s.%3$s
        def failing(*arguments):
            if os.path.exists('%4$s'):
                raise DiskFullError('the disk is full')
            return works(*arguments)
        %2$s.%3$s = failing
        """
            .formatted(module, type, method, full));
    return full;
  }

  /** The first changelog of each store is refused, as with expired credentials. */
  private void expireCredentialsOnce() throws IOException {
    refuseOnce("CredentialsExpiredError");
  }

  private void refuseOnce(String error) throws IOException {
    fixture.patchEngine(
        """
        from cairn.errors import %s as Refusal
        from cairn.storage.local import LocalStore
        put, refused = LocalStore.put, []
        def expiring(self, key, data):
            if key.startswith('changelog/') and not refused:
                refused.append(key)
                raise Refusal('the storage does not know these keys')
            return put(self, key, data)
        LocalStore.put = expiring
        """
            .formatted(error));
  }

  /** Keys that were replaced are refused like wrong ones; the job may have the new ones. */
  @Test
  void aCommitContinuesWithReplacedKeys() throws IOException {
    refuseOnce("AccessError");
    CairnStateStoreProvider provider = fixture.provider();

    Option<String> id = commit(provider, 0, NO_ID, 1, 2);

    assertEquals(Map.of(1L, "v1@1", 2L, "v2@1"), rows(fixture.provider(), 1, id));
  }

  /** The expiry of a token must not fail the commits of all partitions. */
  @Test
  void aCommitContinuesWithRenewedCredentials() throws IOException {
    expireCredentialsOnce();
    CairnStateStoreProvider provider = fixture.provider();

    Option<String> id = commit(provider, 0, NO_ID, 1, 2);

    assertEquals(Map.of(1L, "v1@1", 2L, "v2@1"), rows(fixture.provider(), 1, id));
    assertEquals(1, fixture.objects("changelog").size());
  }

  /** The same for more writes than the channel copies. */
  @Test
  void aLargeCommitContinuesWithRenewedCredentials() throws IOException {
    expireCredentialsOnce();
    StateStore store = fixture.provider().getStore(0, NO_ID, false, false);
    String large = "x".repeat(1000);
    for (long key = 0; key < KEYS; key++) {
      store.put(key(key), value(large), "default");
    }

    assertEquals(1, store.commit());

    assertEquals(KEYS, store.metrics().numKeys());
  }

  /**
   * The cache receives the writes while the engine commits them. If the commit fails, the next
   * session must not read them.
   */
  @Test
  void aFailedCommitLeavesNoRowsInTheCache() throws IOException {
    Path full = failWhileFull("cairn.storage.local", "LocalStore", "put");
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commitAll(provider);
    StateStore store = provider.getStore(1, id, false, false);
    for (long key = 0; key < KEYS; key += 2) {
      store.put(key(key), value("never"), "default");
      store.remove(key(key + 1), "default");
      store.put(key(KEYS + key), value("never"), "default");
    }
    Files.createFile(full);

    Throwable error = assertThrows(Throwable.class, store::commit);

    assertTrue(StoreFixture.chain(error).contains("CAIRN_DISK_FULL"), StoreFixture.chain(error));
    store.abort();
    assertEquals(-1, provider.latestVersion());
    Files.delete(full);
    StateStore again = provider.getStore(1, id, false, false);
    Map<Long, String> rows = all(again.iterator("default"));
    assertEquals(KEYS, rows.size());
    rows.forEach((key, text) -> assertEquals("v" + key + "@1", text));
    again.put(key(1), value("second"), "default");
    assertEquals(2, again.commit());
    assertEquals(KEYS, again.metrics().numKeys());
  }

  /**
   * A database that failed stays broken until the next load, so a retry must load the version
   * again. An abort for another reason needs no load.
   */
  @Test
  void afterAnErrorOfTheEngineTheNextSessionLoadsAgain() throws IOException {
    fixture.withLeastCache();
    Path full = failWhileFull("cairn.store.local.local_state", "LocalState", "look_up");
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commitAll(provider);
    provider.getStore(1, id, false, false).abort();
    assertEquals(1, provider.latestVersion());

    StateStore store = provider.getStore(1, id, false, false);
    Files.createFile(full);
    Throwable error = assertThrows(Throwable.class, () -> readAll(store));
    assertTrue(StoreFixture.chain(error).contains("CAIRN_DISK_FULL"), StoreFixture.chain(error));
    store.abort();

    assertEquals(-1, provider.latestVersion());
    Files.delete(full);
    commit(provider, 1, id, 1);
  }

  /**
   * A stopped worker never answers, and must not block its tasks forever. The task does not repeat
   * the call: it would take as long again.
   */
  @Test
  void aStoppedWorkerIsReplaced() throws Exception {
    fixture.settings.put(StoreFixture.CAIRN + "requestTimeoutMs", "500");
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commit(provider, 0, NO_ID, 1);
    ProcessHandle stopped = fixture.workers().get(0);
    fixture.signalWorker("STOP");

    CairnStateStoreProvider other = fixture.provider();

    Throwable error = assertThrows(Throwable.class, () -> other.getReadStore(1, id));

    String text = StoreFixture.chain(error);
    assertTrue(text.contains("CAIRN_ENGINE_TIMEOUT") && text.contains("requestTimeoutMs"), text);
    assertEquals(Map.of(1L, "v1@1"), rows(other, 1, id));
    assertFalse(stopped.isAlive());
  }

  /** A worker that stops during a commit is ended too; the outcome of the commit is unknown. */
  @Test
  void aWorkerThatStopsInACommitIsReplaced() throws Exception {
    fixture.settings.put(StoreFixture.CAIRN + "requestTimeoutMs", "500");
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commit(provider, 0, NO_ID, 1);
    ProcessHandle stopped = fixture.workers().get(0);
    StateStore store = provider.getStore(1, id, false, false);
    store.put(key(2), value("lost"), "default");
    fixture.signalWorker("STOP");

    Throwable error = assertThrows(Throwable.class, store::commit);

    store.abort();
    String text = StoreFixture.chain(error);
    assertTrue(text.contains("did not answer the call commit within 500 ms"), text);
    assertTrue(text.contains("store=0/0/default, version=2"), text);
    stopped.onExit().get(20, TimeUnit.SECONDS);
    assertEquals(Map.of(1L, "v1@1"), rows(provider, 1, id));
  }

  /**
   * A task that waits for the lock must not wait for the whole timeout when the provider is closed.
   */
  @Test
  void aTaskThatWaitsForAClosedStoreFails() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    StateStore held = provider.getStore(0, NO_ID, false, false);
    CompletableFuture<Throwable> waiting = new CompletableFuture<>();
    Thread second =
        new Thread(
            () -> {
              try {
                provider.getStore(0, NO_ID, false, false);
                waiting.complete(null);
              } catch (Throwable e) {
                waiting.complete(e);
              }
            });
    second.start();
    Waits.untilIn(second, "Semaphore", "tryAcquire");

    provider.close();
    held.abort();

    String error = StoreFixture.chain(waiting.get(30, TimeUnit.SECONDS));
    assertTrue(error.contains("CAIRN_CLOSED") && error.contains("store=0/0/default"), error);
    assertTrue(error.contains("Next: none if Spark retries the task"), error);
  }

  /** Opens a store whose rows are not cached, and stops its worker, which then never answers. */
  private StateStore storeOfAStoppedWorker() throws Exception {
    fixture.withLeastCache();
    fixture.settings.put(StoreFixture.CAIRN + "requestTimeoutMs", "500");
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commitAll(provider);
    StateStore store = provider.getStore(1, id, false, false);
    fixture.signalWorker("STOP");
    return store;
  }

  /** An error of a row call names store and version, like errors of loads and commits. */
  @Test
  void aReadWithoutAReplyNamesStoreAndVersion() throws Exception {
    StateStore store = storeOfAStoppedWorker();

    Throwable error = assertThrows(Throwable.class, () -> readAll(store));

    fixture.killWorkers();
    String text = StoreFixture.chain(error);
    assertTrue(text.contains("CAIRN_ENGINE_TIMEOUT"), text);
    assertTrue(text.contains("store=0/0/default, version=1"), text);
    store.abort();
  }

  /** The late reply to the first read must not answer the next one, nor hide why it failed. */
  @Test
  void aReadAfterOneWithoutAReplyFailsForTheSameReason() throws Exception {
    StateStore store = storeOfAStoppedWorker();
    Throwable first = assertThrows(Throwable.class, () -> readAll(store));
    fixture.signalWorker("CONT");

    Throwable second = assertThrows(Throwable.class, () -> readAll(store));

    assertEquals(StoreFixture.chain(first), StoreFixture.chain(second));
    store.abort();
  }

  /** A connection that broke must not leave the instance in a worker that still runs. */
  @Test
  void anInstanceIsClosedAfterItsConnectionBroke() throws Exception {
    fixture.withLeastCache();
    fixture.patchEngine(
        """
        from cairn.engine import frame_service
        def breaking(request):
            request.service.event_loop.post(request.connection.close)
        frame_service._commit = breaking
        """);
    CairnStateStoreProvider provider = fixture.provider();
    StateStore store = provider.getStore(0, NO_ID, false, false);
    for (long key = 0; key < KEYS; key++) {
      store.put(key(key), value("x".repeat(1000)), "default");
    }
    Throwable error = assertThrows(Throwable.class, store::commit);
    assertTrue(StoreFixture.chain(error).contains("CAIRN_WORKER_LOST"));
    assertEquals(1, instanceFolders());

    provider.close();

    assertEquals(0, instanceFolders());
  }

  private long instanceFolders() throws IOException {
    try (Stream<Path> files = Files.walk(fixture.folder.resolve("local"))) {
      return files.filter(file -> file.getFileName().toString().matches("i[0-9]+")).count();
    }
  }

  /** A session that was loaded empty stays empty when its worker is lost. */
  @Test
  void aSessionLoadedEmptyStaysEmpty() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commit(provider, 0, NO_ID, 1, 2);
    StateStore store = provider.getStore(1, id, false, true);
    store.put(key(3), value("new"), "default");
    fixture.killWorkers();

    assertEquals(2, store.commit());

    Option<String> two = store.getStateStoreCheckpointInfo().stateStoreCkptId();
    assertEquals(Map.of(3L, "new"), rows(fixture.provider(), 2, two));
  }

  /** A task thread that ends must not leave a connection open. */
  @Test
  void threadsThatEndLeaveNoConnection() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    List<Option<String>> ids = new ArrayList<>(List.of(commit(provider, 0, NO_ID, 0)));
    UnixOperatingSystemMXBean system =
        (UnixOperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    long before = system.getOpenFileDescriptorCount();

    for (int version = 1; version <= 40; version++) {
      int base = version;
      Thread task = new Thread(() -> ids.add(commit(provider, base, ids.get(base - 1), base)));
      task.start();
      task.join();
    }

    assertEquals(41, ids.size());
    long more = system.getOpenFileDescriptorCount() - before;
    assertTrue(more < 20, more + " more descriptors are open");
  }
}
