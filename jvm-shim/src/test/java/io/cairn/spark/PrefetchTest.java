package io.cairn.spark;

import static io.cairn.spark.StoreFixture.KEY;
import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.commit;
import static io.cairn.spark.StoreFixture.key;
import static io.cairn.spark.StoreFixture.text;
import static io.cairn.spark.StoreFixture.value;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.extension.PrefetchIterator;
import java.io.IOException;
import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Random;
import java.util.stream.LongStream;
import org.apache.logging.log4j.Level;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;
import scala.collection.AbstractIterator;
import scala.jdk.javaapi.CollectionConverters;

/** The rows of a task that prefetches their keys from a store with a real worker. */
class PrefetchTest {
  private static final long KEYS = 20_000;
  private static final int ROWS = 100;

  private StoreFixture fixture;
  private TaskContextImpl task;
  private Input input;

  @BeforeEach
  void begin() throws IOException {
    fixture = new StoreFixture().withOwnWorker().withLeastCache();
    task = TaskContext$.MODULE$.empty();
    TaskContext$.MODULE$.setTaskContext(task);
    input = new Input(LongStream.range(0, 3_000).map(i -> new Random(i).nextLong(2 * KEYS)));
  }

  @AfterEach
  void end() throws IOException {
    task.markTaskCompleted(Option.empty());
    TaskContext$.MODULE$.unset();
    fixture.close();
  }

  /** Rows that the upstream operator reuses, as Spark's do. */
  private static final class Input extends AbstractIterator<InternalRow> {
    private final UnsafeRow row = key(0);
    private final long[] keys;
    private int taken;

    Input(LongStream keys) {
      this.keys = keys.toArray();
    }

    @Override
    public boolean hasNext() {
      return taken < keys.length;
    }

    @Override
    public InternalRow next() {
      row.setLong(0, keys[taken++]);
      return row;
    }
  }

  private PrefetchIterator rows(StateStoreId store) {
    return new PrefetchIterator(
        input,
        () -> UnsafeProjection.create(KEY),
        List.of(new PrefetchIterator.Target(store, "default", false, null)),
        null,
        ROWS);
  }

  /** Version 1 with all keys, in a cache that holds few of them. */
  private StateStore opened(CairnStateStoreProvider provider) {
    return provider.getStore(
        1, commit(provider, 0, NO_ID, LongStream.range(0, KEYS).toArray()), false, false);
  }

  private static void assertFound(StateStore store, long key) {
    assertEquals(key < KEYS ? "v" + key + "@1" : null, text(store.get(key(key), "default")));
  }

  private static long metric(StateStore store, String name) {
    return CollectionConverters.asJava(store.metrics().customMetrics()).entrySet().stream()
        .filter(entry -> entry.getKey().name().equals(name))
        .mapToLong(entry -> (long) entry.getValue())
        .sum();
  }

  /** An operator must get each row once and in order: groups depend on the order. */
  @Test
  void rowsComeInTheirOrderAndTheirKeysAreInTheCache() {
    StateStore store = opened(fixture.provider());
    PrefetchIterator rows = rows(fixture.id);
    int mostAhead = 0;

    for (int i = 0; i < input.keys.length; i++) {
      assertTrue(rows.hasNext());
      long key = rows.next().getLong(0);
      assertEquals(input.keys[i], key);
      assertFound(store, key);
      mostAhead = Math.max(mostAhead, input.taken - i);
    }

    assertFalse(rows.hasNext());
    assertThrows(NoSuchElementException.class, rows::next);
    assertEquals(2 * ROWS, mostAhead);
    assertTrue(metric(store, "cairnPrefetchHits") > 2_000, store.metrics().toString());
    assertTrue(metric(store, "cairnPrefetchMisses") < 100, store.metrics().toString());
    assertEquals(2, store.commit());
  }

  /** The write buffer spills while keys are on their way. */
  @Test
  void writesBetweenTheRowsAreReadBack() {
    StateStore store = opened(fixture.provider());
    PrefetchIterator rows = rows(fixture.id);
    Map<Long, String> written = new HashMap<>();

    while (rows.hasNext()) {
      long key = rows.next().getLong(0);
      String expected = written.getOrDefault(key, key < KEYS ? "v" + key + "@1" : null);
      assertEquals(expected, text(store.get(key(key), "default")));
      written.put(key, key + "x".repeat(300));
      store.put(key(key), value(written.get(key)), "default");
    }

    assertEquals(2, store.commit());
    assertTrue(metric(store, "cairnSpills") > 0, store.metrics().toString());
    StateStore read =
        fixture.provider().getReadStore(2, store.getStateStoreCheckpointInfo().stateStoreCkptId());
    written.forEach((key, value) -> assertEquals(value, text(read.get(key(key), "default"))));
  }

  /** A buffer of rows is only a cost if the cache has all keys. */
  @Test
  void nothingIsBufferedWhileTheCacheHasTheWholeState() {
    CairnStateStoreProvider provider = fixture.provider();
    StateStore store = provider.getStore(1, commit(provider, 0, NO_ID, 1, 2, 3), false, false);
    PrefetchIterator rows = rows(fixture.id);

    for (int i = 0; i < input.keys.length; i++) {
      assertEquals(input.keys[i], rows.next().getLong(0));
      assertEquals(i + 1, input.taken);
    }

    assertFalse(rows.hasNext());
    store.abort();
    assertEquals(0, metric(store, "cairnCacheMisses"));
  }

  /** The provider of the query may be Spark's, or the rule may have named another store. */
  @Test
  void rowsOfATaskWithoutThatStorePassUnbuffered() {
    StateStore store = opened(fixture.provider());
    StateStoreId other = new StateStoreId(fixture.id.checkpointRootLocation(), 9, 0, "default");
    PrefetchIterator rows = rows(other);

    for (int i = 0; i < input.keys.length; i++) {
      assertEquals(input.keys[i], rows.next().getLong(0));
      assertEquals(i + 1, input.taken);
    }

    assertEquals(0, metric(store, "cairnPrefetchHits"));
  }

  /** A task of another attempt id. The constructor differs between the minors of Spark. */
  private static TaskContextImpl otherTask() throws ReflectiveOperationException {
    TaskContextImpl other = TaskContext$.MODULE$.empty();
    Field id = TaskContextImpl.class.getDeclaredField("taskAttemptId");
    id.setAccessible(true);
    id.setLong(other, 1);
    return other;
  }

  /** Another task on the executor may prefetch from a store of the same name. */
  @Test
  void aSessionIsFoundByItsTaskAlone() throws ReflectiveOperationException {
    StateStore store = opened(fixture.provider());
    TaskContextImpl other = otherTask();
    assertEquals(1, other.taskAttemptId());

    TaskContext$.MODULE$.setTaskContext(other);
    rows(fixture.id).next();
    assertEquals(1, input.taken);

    TaskContext$.MODULE$.setTaskContext(task);
    rows(fixture.id).next();
    assertEquals(1 + 2 * ROWS, input.taken);
    store.abort();
  }

  /** A session that has ended reads nothing: its task may go on with the rows. */
  @Test
  void aSessionIsFoundUntilItsEnd() {
    StateStore store = opened(fixture.provider());
    store.abort();

    rows(fixture.id).next();

    assertEquals(1, input.taken);
  }

  /** Each of two buffers ends at its bound of bytes, whatever the number of rows. */
  @Test
  void buffersOfLargeRowsAreBounded() {
    StateStore store = opened(fixture.provider());
    UnsafeRow large =
        StoreFixture.row(
            StoreFixture.struct(DataTypes.LongType, DataTypes.StringType),
            1L,
            UTF8String.fromString("x".repeat(100_000)));
    int[] taken = new int[1];
    PrefetchIterator rows =
        new PrefetchIterator(
            new AbstractIterator<InternalRow>() {
              @Override
              public boolean hasNext() {
                return taken[0] < 200;
              }

              @Override
              public InternalRow next() {
                taken[0]++;
                return large;
              }
            },
            () -> UnsafeProjection.create(KEY),
            List.of(new PrefetchIterator.Target(fixture.id, "default", false, null)),
            null,
            ROWS);

    assertEquals(1L, rows.next().getLong(0));

    assertEquals(22, taken[0]);
    assertFound(store, 1);
  }

  /** A prefetch must not fail a task that would have survived the loss of its worker. */
  @Test
  void aWorkerKilledWhileKeysAreOnTheirWayChangesNoRow() throws Exception {
    StateStore store = opened(fixture.provider());
    PrefetchIterator rows = rows(fixture.id);

    for (int i = 0; i < input.keys.length; i++) {
      long key = rows.next().getLong(0);
      assertEquals(input.keys[i], key);
      assertFound(store, key);
      if (i == 250 || i == 1_299) {
        fixture.killWorkers();
      }
    }

    store.put(key(KEYS), value("last"), "default");
    assertEquals(2, store.commit());
  }

  /** The rows stay right, so only the log can say why every batch became slow. */
  @Test
  void requestsThatTheWorkerRefusesAreLoggedOnce() throws IOException {
    fixture.patchEngine(
        """
        from cairn.engine import frame_service
        from cairn.errors import CorruptError
        from cairn.protocol import frames
        get, calls = frame_service._READS[frames.GET], []
        def refusing(request):
            calls.append(1)
            if len(calls) % 2:
                raise CorruptError('a block is damaged')
            return (yield from get(request))
        frame_service._READS[frames.GET] = refusing
        """);
    try (LogOf log = new LogOf("io.cairn.spark.engine.EngineInstance", Level.WARN)) {
      StateStore store = opened(fixture.provider());
      PrefetchIterator rows = rows(fixture.id);

      for (long key : input.keys) {
        assertEquals(key, rows.next().getLong(0));
        assertFound(store, key);
      }

      assertEquals(1, log.lines.size(), log.lines.toString());
      String line = log.lines.get(0);
      assertTrue(line.contains("a block is damaged"), line);
      assertTrue(line.contains("(store=0/0/default, version=1)"), line);
      assertTrue(line.contains("one by one"), line);
      store.abort();
    }
  }

  /** The last rows are never consumed, as under a limit, or when the task fails. */
  @Test
  void aTaskMayEndWhileKeysAreOnTheirWay() {
    CairnStateStoreProvider provider = fixture.provider();
    StateStore store = opened(provider);
    PrefetchIterator rows = rows(fixture.id);
    long key = rows.next().getLong(0);
    assertFound(store, key);

    store.put(key(key), value("mine"), "default");
    assertEquals(2, store.commit());

    StateStore next =
        provider.getStore(2, store.getStateStoreCheckpointInfo().stateStoreCkptId(), false, false);
    assertEquals("mine", text(next.get(key(key), "default")));
    for (long other = key + 1; other < key + 500; other++) {
      assertFound(next, other);
    }
    assertTrue(rows.hasNext());
    next.abort();
  }
}
