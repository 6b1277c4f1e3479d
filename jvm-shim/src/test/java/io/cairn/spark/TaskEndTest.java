package io.cairn.spark;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.commit;
import static io.cairn.spark.StoreFixture.key;
import static io.cairn.spark.StoreFixture.text;
import static io.cairn.spark.StoreFixture.value;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.nio.file.Files;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;

/**
 * Trap 4: Spark does not release the read stores of aggregations, and a failed task leaves its
 * stores open. A store ends with its task.
 */
class TaskEndTest {
  private StoreFixture fixture;
  private TaskContextImpl task;

  @BeforeEach
  void begin() throws IOException {
    fixture = new StoreFixture();
    fixture.settings.put(StoreFixture.CAIRN + "lockTimeoutMs", "200");
    task = TaskContext$.MODULE$.empty();
    TaskContext$.MODULE$.setTaskContext(task);
  }

  @AfterEach
  void end() throws IOException {
    TaskContext$.MODULE$.unset();
    fixture.close();
  }

  @Test
  void trap04AReadStoreEndsWithItsTask() {
    CairnStateStoreProvider provider = fixture.provider();
    StateStore read = provider.getReadStore(0, NO_ID);

    task.markTaskCompleted(Option.empty());

    assertThrows(RuntimeException.class, () -> read.get(key(1), "default"));
    TaskContext$.MODULE$.unset();
    provider.getStore(0, NO_ID, false, false).abort();
  }

  @Test
  void trap04AWriteStoreIsAbortedWithItsFailedTask() {
    CairnStateStoreProvider provider = fixture.provider();
    StateStore store = provider.getStore(0, NO_ID, false, false);
    store.put(key(1), value("dirty"), "default");

    task.markTaskFailed(new RuntimeException("the task failed"));
    task.markTaskCompleted(Option.apply(new RuntimeException("the task failed")));

    TaskContext$.MODULE$.unset();
    StateStore next = provider.getStore(0, NO_ID, false, false);
    assertEquals(null, next.get(key(1), "default"));
    next.abort();
  }

  /** A store that is opened after the failure of its task would never be released. */
  @Test
  void aTaskThatHasFailedOpensNothing() {
    CairnStateStoreProvider provider = fixture.provider();
    task.markTaskFailed(new RuntimeException("the task failed"));

    assertThrows(Throwable.class, () -> provider.getStore(0, NO_ID, false, false));

    TaskContext$.MODULE$.unset();
    provider.getStore(0, NO_ID, false, false).abort();
  }

  /**
   * In format 1 a version has no id, and another attempt may replace the commit of a failed one, so
   * the next session loads it.
   */
  @Test
  void inFormatOneOnlyTheVersionOfASuccessfulAttemptIsUsedAgain() {
    fixture.settings.put("spark.sql.streaming.stateStore.checkpointFormatVersion", "1");
    CairnStateStoreProvider ours = fixture.provider();
    commit(ours, 0, NO_ID, 1);
    task.markTaskFailed(new RuntimeException("after the commit"));
    task.markTaskCompleted(Option.apply(new RuntimeException("after the commit")));
    TaskContext$.MODULE$.unset();
    CairnStateStoreProvider other = fixture.provider();
    commit(other, 0, NO_ID, 2);

    StateStore read = ours.getReadStore(1, NO_ID);

    assertEquals("v2@1", text(read.get(key(2), "default")));
    assertEquals(null, read.get(key(1), "default"));
    read.release();
  }

  /** The version of a successful attempt is used again without a load. */
  @Test
  void theVersionOfASuccessfulAttemptIsUsedAgain() throws IOException {
    fixture.settings.put("spark.sql.streaming.stateStore.checkpointFormatVersion", "1");
    CairnStateStoreProvider provider = fixture.provider();
    commit(provider, 0, NO_ID, 1);
    task.markTaskCompleted(Option.empty());
    TaskContext$.MODULE$.unset();
    // Without its only object, every request to the object store fails.
    Files.delete(fixture.folder.resolve("state/0/0/changelog/1.arrow"));

    StateStore next = provider.getStore(1, NO_ID, false, false);

    assertEquals("v1@1", text(next.get(key(1), "default")));
    next.abort();
  }
}
