package io.cairn.spark.engine;

import static io.cairn.spark.StoreFixture.CAIRN;
import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.commit;
import static io.cairn.spark.StoreFixture.read;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.CairnStateStoreProvider;
import io.cairn.spark.LogOf;
import io.cairn.spark.StoreFixture;
import io.cairn.spark.Waits;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.logging.log4j.Level;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;

/** New settings of the engine have their own workers; those of former settings end if they can. */
class IdleWorkersTest {
  private StoreFixture fixture;
  private LogOf log;

  @BeforeEach
  void open() throws Exception {
    Waits.until("the end of the stores of other tests", () -> !WorkerPool.areInUse());
    fixture = new StoreFixture().withOwnWorker();
    log = new LogOf(WorkerPool.class.getName(), Level.WARN);
  }

  @AfterEach
  void close() throws IOException {
    log.close();
    fixture.close();
  }

  /** Creates a provider whose settings no other provider of this JVM has. */
  private CairnStateStoreProvider providerOfNewSettings() {
    fixture.settings.put(CAIRN + "workerMemory", "65m");
    return fixture.provider();
  }

  /** A notebook that changes a setting between its queries would keep a worker for each value. */
  @Test
  void newSettingsEndTheWorkersThatNoStoreUses() throws Exception {
    CairnStateStoreProvider first = fixture.provider();
    Option<String> id = commit(first, 0, NO_ID, 1);
    ProcessHandle idle = fixture.worker();
    // The store is in use until its commit is folded.
    assertEquals(List.of("v1@1"), read(first, 1, id, 1));
    first.close();
    assertTrue(idle.isAlive(), "the next query of these settings needs it");

    CairnStateStoreProvider second = providerOfNewSettings();

    idle.onExit().get(10, TimeUnit.SECONDS);
    assertEquals(List.of(), log.lines);
    assertEquals(List.of("v1@1"), read(second, 1, id, 1));
    second.close();
    fixture.settings.remove(CAIRN + "workerMemory");
    assertEquals(List.of("v1@1"), read(fixture.provider(), 1, id, 1));
    assertEquals(List.of(), log.lines, "a worker that was ended has not died");
  }

  /** Another query may run with them; its sessions would lose the worker. */
  @Test
  void theWorkersOfAnOpenStoreStayAndTheLogSaysThatSettingsDiffer() {
    CairnStateStoreProvider first = fixture.provider();
    Option<String> id = commit(first, 0, NO_ID, 1);
    ProcessHandle inUse = fixture.worker();
    StateStore session = first.getStore(1, id, false, false);
    StoreFixture.put(session, 2, 2);

    CairnStateStoreProvider second = providerOfNewSettings();

    assertEquals(1, log.lines.size(), log.lines.toString());
    assertTrue(log.lines.get(0).contains("differ in the settings of the engine"), log.lines.get(0));
    assertEquals(List.of("v1@1"), read(second, 1, id, 1));
    assertEquals(2, session.commit());
    assertTrue(inUse.isAlive());
    assertEquals(2, fixture.workers().size());
  }

  /** The first task of a query joins before the worker is there. */
  @Test
  void aWorkerThatStartsForAStoreStays() throws Exception {
    Path mayStart = fixture.folder.resolve("may-start");
    fixture.patchEngine(
        """
        import os, time
        while not os.path.exists('%s'):
            time.sleep(0.005)
        """
            .formatted(mayStart));
    CairnStateStoreProvider first = fixture.provider();
    CompletableFuture<Option<String>> id =
        CompletableFuture.supplyAsync(() -> commit(first, 0, NO_ID, 1));
    Waits.until("a worker", () -> !fixture.workers().isEmpty());
    ProcessHandle starting = fixture.worker();

    providerOfNewSettings();
    Files.createFile(mayStart);

    assertEquals(List.of("v1@1"), read(first, 1, id.get(30, TimeUnit.SECONDS), 1));
    assertTrue(starting.isAlive());
    assertEquals(starting, fixture.worker());
  }
}
