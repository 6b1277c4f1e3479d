package io.cairn.spark.engine;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.commit;
import static io.cairn.spark.StoreFixture.read;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.CairnStateStoreProvider;
import io.cairn.spark.StoreFixture;
import io.cairn.spark.Waits;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;

/** Workers of settings that no store uses any more do not stay beside those in use. */
class WorkerPoolTest {
  private static final long A_DAY_MS = TimeUnit.DAYS.toMillis(1);

  private StoreFixture fixture;
  private StoreFixture other;
  private long keptMs;

  @BeforeEach
  void open() throws Exception {
    Waits.until("the end of the stores of other tests", () -> !WorkerPool.areInUse());
    fixture = new StoreFixture().withOwnWorker();
    other = new StoreFixture().withOwnWorker();
    keptMs = WorkerPool.keepIdleFor(A_DAY_MS);
  }

  @AfterEach
  void close() throws IOException {
    WorkerPool.keepIdleFor(keptMs);
    fixture.close();
    other.close();
  }

  /** The processes of the other fixture are those that started after the worker of the first. */
  private ProcessHandle workerBeside(ProcessHandle first) {
    List<ProcessHandle> workers =
        other.workers().stream().filter(worker -> !worker.equals(first)).toList();
    assertEquals(1, workers.size(), workers.toString());
    return workers.get(0);
  }

  /** A state reader with other settings runs once beside a query that never ends. */
  @Test
  void theWorkersOfAnEndedQueryEndWhileAnotherQueryRuns() throws Exception {
    CairnStateStoreProvider query = fixture.provider();
    Option<String> id = commit(query, 0, NO_ID, 1);
    ProcessHandle inUse = fixture.worker();
    CairnStateStoreProvider reader = other.provider();
    commit(reader, 0, NO_ID, 1);
    ProcessHandle idle = workerBeside(inUse);
    WorkerPool.keepIdleFor(100);

    reader.close();

    idle.onExit().get(10, TimeUnit.SECONDS);
    assertTrue(inUse.isAlive());
    assertEquals(List.of("v1@1"), read(query, 1, id, 1));
  }

  /** The tasks of a reader follow each other in one task slot, each with a store of its own. */
  @Test
  void aWorkerStaysBetweenTheTasksOfOneQuery() {
    commit(fixture.provider(), 0, NO_ID, 1);
    ProcessHandle inUse = fixture.worker();
    CairnStateStoreProvider task = other.provider();
    Option<String> id = commit(task, 0, NO_ID, 1);
    ProcessHandle idle = workerBeside(inUse);
    task.close();

    assertEquals(List.of("v1@1"), read(other.provider(), 1, id, 1));

    assertEquals(idle, workerBeside(inUse));
  }

  /** The workers of the only settings stay, but not beside those of the query that runs next. */
  @Test
  void aQueryOfKnownSettingsEndsTheWorkersThatAreIdle() throws Exception {
    CairnStateStoreProvider first = fixture.provider();
    Option<String> id = commit(first, 0, NO_ID, 1);
    ProcessHandle former = fixture.worker();
    // The store is in use until its commit is folded.
    assertEquals(List.of("v1@1"), read(first, 1, id, 1));
    first.close();
    CairnStateStoreProvider second = other.provider();
    former.onExit().get(10, TimeUnit.SECONDS);
    Option<String> other = commit(second, 0, NO_ID, 1);
    ProcessHandle idle = fixture.worker();
    assertEquals(List.of("v1@1"), read(second, 1, other, 1));
    second.close();
    WorkerPool.keepIdleFor(0);
    assertTrue(idle.isAlive(), "the next query of these settings needs it");

    assertEquals(List.of("v1@1"), read(fixture.provider(), 1, id, 1));

    idle.onExit().get(10, TimeUnit.SECONDS);
    assertFalse(fixture.workers().isEmpty());
  }
}
