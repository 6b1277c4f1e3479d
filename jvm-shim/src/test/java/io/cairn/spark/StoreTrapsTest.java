package io.cairn.spark;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.all;
import static io.cairn.spark.StoreFixture.commit;
import static io.cairn.spark.StoreFixture.key;
import static io.cairn.spark.StoreFixture.text;
import static io.cairn.spark.StoreFixture.value;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;

/** Each trap in Spark's contract of a store, tested with a real worker. */
class StoreTrapsTest {
  private StoreFixture fixture;

  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture();
  }

  @AfterEach
  void close() throws IOException {
    fixture.close();
  }

  /** Trap 3a: Spark may upgrade the read store of another operator. */
  @Test
  void trap03UpgradeOfAnotherStoresReadStoreOpensOurOwn() throws IOException {
    try (StoreFixture other = new StoreFixture("other")) {
      CairnStateStoreProvider ours = fixture.provider();
      StateStore foreign = other.provider().getReadStore(0, NO_ID);

      StateStore upgraded = ours.upgradeReadStoreToWriteStore(foreign, 0, NO_ID, false);

      assertEquals(fixture.id, upgraded.id());
      upgraded.put(key(1), value("x"), "default");
      assertEquals(1, upgraded.commit());
      foreign.release();
    }
  }

  /**
   * Trap 3b: Spark may replace the provider between read and upgrade; the session continues in the
   * first one.
   */
  @Test
  void trap03UpgradeThroughAnotherInstanceOfTheStoreKeepsTheSession() {
    CairnStateStoreProvider before = fixture.provider();
    StateStore read = before.getReadStore(0, NO_ID);

    StateStore upgraded = fixture.provider().upgradeReadStoreToWriteStore(read, 0, NO_ID, false);

    assertSame(read, upgraded);
    upgraded.put(key(1), value("x"), "default");
    assertEquals(1, upgraded.commit());
  }

  /** Trap 3c: the state data source releases read stores twice. */
  @Test
  void trap03AReadStoreIsReleasedAndMayNotBeWritten() {
    CairnStateStoreProvider provider = fixture.provider();
    StateStore read = provider.getReadStore(0, NO_ID);

    assertThrows(RuntimeException.class, () -> read.put(key(1), value("x"), "default"));
    assertThrows(RuntimeException.class, read::commit);
    read.release();
    read.release();
    read.abort();

    assertThrows(RuntimeException.class, () -> read.get(key(1), "default"));
    provider.getStore(0, NO_ID, false, false).abort();
  }

  /**
   * Trap 5: the report to the coordinator is part of the commit. Spark swallows what is not fatal
   * to the task; the rest, such as its cancellation, has the error that Spark expects of a commit.
   */
  @Test
  void trap05AReportThatFailsIsAFailedCommit() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    StateStore store = provider.getStore(0, NO_ID, false, false);
    store.put(key(1), value("x"), "default");
    // The report reads the run's id from these settings, which read their files again then.
    Configuration settings = provider.store().runConf;
    settings.reloadConfiguration();
    settings.addResource(
        new InputStream() {
          @Override
          public int read() {
            throw new LinkageError("fatal in the report");
          }
        });

    Throwable error = assertThrows(Throwable.class, store::commit);

    String text = StoreFixture.chain(error);
    assertTrue(text.contains("CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT"), text);
    assertTrue(text.contains("fatal in the report"), text);
    assertTrue(store.hasCommitted(), "the version is durable, and an abort must not undo it");
    StateStore read =
        fixture.provider().getReadStore(1, store.getStateStoreCheckpointInfo().stateStoreCkptId());
    assertEquals("x", text(read.get(key(1), "default")));
    read.release();
  }

  /** Trap 6: a commit uploads a snapshot if the coordinator requests one. */
  @Test
  void trap06ACommitUploadsARequestedSnapshot() throws IOException {
    StateStore store = fixture.provider().getStore(0, NO_ID, true, false);
    store.put(key(1), value("x"), "default");

    store.commit();

    assertEquals(1, fixture.objects("snapshot").size());
    assertEquals(1L, store.metrics().instanceMetrics().values().head());
  }

  /**
   * Trap 7: maintenance runs in parts or as a whole, before the first store, beside a session and
   * after close, and never throws.
   */
  @Test
  void trap07MaintenanceNeverThrows() throws IOException {
    CairnStateStoreProvider provider = fixture.provider();
    provider.doSnapshotMaintenance();
    provider.doCleanupMaintenance();
    Option<String> id = commit(provider, 0, NO_ID, 1);
    StateStore running = provider.getStore(1, id, false, false);
    running.put(key(2), value("x"), "default");

    provider.doMaintenance();
    provider.doSnapshotMaintenance();
    provider.doCleanupMaintenance();
    running.commit();
    provider.close();
    provider.doMaintenance();

    assertEquals(2, fixture.objects("changelog").size());
  }

  /**
   * Trap 7: a close beside a running task lets the task finish, while Spark loads another provider.
   */
  @Test
  void trap07CloseBesideARunningSessionLetsItCommit() throws IOException {
    CairnStateStoreProvider provider = fixture.provider();
    StateStore running = provider.getStore(0, NO_ID, false, false);
    running.put(key(1), value("x"), "default");

    provider.close();
    provider.close();

    assertEquals(1, running.commit());
    assertThrows(
        Throwable.class,
        () ->
            provider.getStore(
                1, running.getStateStoreCheckpointInfo().stateStoreCkptId(), false, false));
    StateStore next =
        fixture
            .provider()
            .getStore(1, running.getStateStoreCheckpointInfo().stateStoreCkptId(), false, false);
    assertEquals("x", text(next.get(key(1), "default")));
    next.abort();
  }

  /** Trap 8: PySpark's transformWithState writes on one thread and commits on another. */
  @Test
  void trap08ASessionMayChangeItsThread() throws Exception {
    StateStore store = fixture.provider().getStore(0, NO_ID, false, false);
    Thread listener =
        new Thread(
            () -> {
              for (long key = 0; key < 1000; key++) {
                store.put(key(key), value("v" + key), "default");
              }
            });
    listener.start();
    listener.join();

    assertEquals("v7", text(store.get(key(7), "default")));
    assertEquals(1, store.commit());
    assertEquals(1000, store.metrics().numKeys());
  }

  /** Trap 9: Spark reuses the rows that it passes. */
  @Test
  void trap09ArgumentRowsAreCopied() {
    StateStore store = fixture.provider().getStore(0, NO_ID, false, false);
    UnsafeRow key = key(1);
    UnsafeRow value = value("first");

    store.put(key, value, "default");
    key.setLong(0, 2);
    value.pointTo(value("later").getBytes(), value("later").getSizeInBytes());
    store.put(key, value, "default");

    assertEquals(Map.of(1L, "first", 2L, "later"), all(store.iterator("default")));
    store.abort();
  }

  /** Trap 9: Spark's eviction removes a key and then emits its pair. */
  @Test
  void trap09APairOutlivesTheRemovalOfItsKey() {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commit(provider, 0, NO_ID, 1, 2, 3);
    StateStore store = provider.getStore(1, id, false, false);
    StateStoreIterator<UnsafeRowPair> pairs = store.iterator("default");
    int seen = 0;

    while (pairs.hasNext()) {
      UnsafeRowPair pair = pairs.next();
      long key = pair.key().getLong(0);
      store.remove(pair.key(), "default");
      store.put(key(100 + key), value("other"), "default");
      if (key < 100) {
        assertEquals("v" + key + "@1", text(pair.value()));
        seen++;
      }
    }

    assertEquals(3, seen);
    assertNull(store.get(key(1), "default"));
    store.abort();
  }

  /**
   * Trap 10: a join aborts once per side, listeners abort again, and every task declares its
   * families.
   */
  @Test
  void trap10EverythingMayBeCalledTwice() {
    CairnStateStoreProvider provider = fixture.familyProvider();
    StateStore store = provider.getStore(0, NO_ID, false, false);
    for (int call = 0; call < 2; call++) {
      store.createColFamilyIfAbsent(
          "f",
          StoreFixture.KEY,
          StoreFixture.VALUE,
          new NoPrefixKeyStateEncoderSpec(StoreFixture.KEY),
          false,
          false);
    }
    store.put(key(1), value("x"), "f");
    store.commit();
    store.abort();
    store.abort();

    assertTrue(store.hasCommitted());
    StateStore next =
        provider.getStore(1, store.getStateStoreCheckpointInfo().stateStoreCkptId(), false, false);
    assertEquals("x", text(next.get(key(1), "f")));
    next.abort();
    next.abort();
    assertFalse(next.hasCommitted());
    assertThrows(RuntimeException.class, next::commit);
  }

  /** Trap 11: the state data source counts partitions by their folders. */
  @Test
  void trap11ThePartitionsFolderExistsAfterInit() {
    fixture.provider();

    assertTrue(fixture.folder.resolve("state/0/0").toFile().isDirectory());
  }

  /**
   * Trap 12: Spark calls init under a lock of all stores of the executor, so no worker may start
   * there.
   */
  @Test
  void trap12InitStartsNothing() {
    fixture.withOwnWorker();
    Set<Thread> threadsBefore = Thread.getAllStackTraces().keySet();
    List<ProcessHandle> processesBefore = ProcessHandle.current().descendants().toList();

    fixture.provider();

    // A worker starts in a thread of its own: the process may come after the return of init.
    Set<Thread> threads = new HashSet<>(Thread.getAllStackTraces().keySet());
    threads.removeAll(threadsBefore);
    threads.removeIf(thread -> !thread.getName().startsWith("cairn-"));
    List<ProcessHandle> processes =
        ProcessHandle.current()
            .descendants()
            .filter(process -> !processesBefore.contains(process))
            .toList();
    assertEquals(Set.of(), threads);
    assertEquals(List.of(), processes);
  }

  /** Trap 14: every attempt has its own id and names the id that it follows. */
  @Test
  void trap14CheckpointIdsAreFreshAndNameTheirBase() {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> one = commit(provider, 0, NO_ID, 1);
    StateStore first = provider.getStore(1, one, false, false);
    first.put(key(2), value("a"), "default");
    first.commit();
    StateStore second = provider.getStore(1, one, false, false);
    assertNull(second.get(key(2), "default"), "an attempt saw another attempt's write");
    second.commit();

    StateStoreCheckpointInfo a = first.getStateStoreCheckpointInfo();
    StateStoreCheckpointInfo b = second.getStateStoreCheckpointInfo();

    assertNotEquals(a.stateStoreCkptId(), b.stateStoreCkptId());
    assertEquals(one, a.baseStateStoreCkptId());
    assertEquals(one, b.baseStateStoreCkptId());
    assertEquals(2, b.batchVersion());
    StateStore winner = provider.getReadStore(2, a.stateStoreCkptId());
    assertEquals("a", text(winner.get(key(2), "default")));
    winner.release();
  }
}
