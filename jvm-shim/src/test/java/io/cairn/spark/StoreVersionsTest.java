package io.cairn.spark;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.all;
import static io.cairn.spark.StoreFixture.commit;
import static io.cairn.spark.StoreFixture.key;
import static io.cairn.spark.StoreFixture.text;
import static io.cairn.spark.StoreFixture.value;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;

/** The content of versions, and missing versions, tested with a real worker. */
class StoreVersionsTest {
  private StoreFixture fixture;

  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture();
  }

  @AfterEach
  void close() throws IOException {
    fixture.close();
  }

  /** Writes are read in the session, after commit, and by a new provider from the objects. */
  @Test
  void aCommittedVersionIsReadByAnotherProvider() throws IOException {
    CairnStateStoreProvider writer = fixture.provider();
    Option<String> one = commit(writer, 0, NO_ID, 1, 2, 3);
    StateStore second = writer.getStore(1, one, false, false);
    second.remove(key(2), "default");
    second.put(key(3), value("new"), "default");
    second.commit();
    Option<String> two = second.getStateStoreCheckpointInfo().stateStoreCkptId();
    writer.close();

    StateStore read = fixture.provider().getReadStore(2, two);

    assertEquals(Map.of(1L, "v1@1", 3L, "new"), all(read.iterator("default")));
    assertEquals(2, read.metrics().numKeys());
    assertNull(read.get(key(2), "default"));
    read.release();
    assertEquals(2, fixture.objects("changelog").size());
  }

  /** Format 1 has no ids: a re-run of a batch replaces the commit of the first run. */
  @Test
  void aReRunOfABatchInFormatOneReplacesIt() {
    fixture.settings.put("spark.sql.streaming.stateStore.checkpointFormatVersion", "1");
    CairnStateStoreProvider first = fixture.provider();
    commit(first, 0, NO_ID, 1);
    commit(first, 1, NO_ID, 2);
    first.close();

    CairnStateStoreProvider second = fixture.provider();
    commit(second, 1, NO_ID, 3);

    StateStore read = second.getReadStore(2, NO_ID);
    assertEquals(Map.of(1L, "v1@1", 3L, "v3@2"), all(read.iterator("default")));
    read.release();
  }

  /** An abort leaves the version unchanged, also for the same instance. */
  @Test
  void anAbortedSessionLeavesTheVersionUnchanged() {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commit(provider, 0, NO_ID, 1, 2);
    StateStore aborted = provider.getStore(1, id, false, false);
    aborted.put(key(1), value("dirty"), "default");
    aborted.remove(key(2), "default");
    aborted.abort();

    StateStore read = provider.getReadStore(1, id);

    assertEquals(Map.of(1L, "v1@1", 2L, "v2@1"), all(read.iterator("default")));
    read.release();
  }

  /** A missing version is an error that names it, never an empty store. */
  @Test
  void aMissingVersionIsAnErrorOfSparksKind() {
    CairnStateStoreProvider provider = fixture.provider();
    commit(provider, 0, NO_ID, 1);

    Throwable error =
        assertThrows(
            Throwable.class,
            () -> provider.getStore(7, Option.apply("u" + "0".repeat(32)), false, false));

    assertTrue(
        StoreFixture.chain(error).contains("CANNOT_READ_STREAMING_STATE_FILE"),
        StoreFixture.chain(error));
    assertTrue(StoreFixture.chain(error).contains("changelog/7_u0000"), StoreFixture.chain(error));
    assertThrows(Throwable.class, () -> provider.getStore(-1, NO_ID, false, false));
    commit(provider, 0, NO_ID, 1);
  }

  /**
   * Spark passes the id of an older version on if entries of its commit log are gone. The store
   * that has the content at hand refuses it as another one does, and goes on with the right id.
   */
  @Test
  void anIdIsRefusedAtAnotherVersionThanItsOwn() {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> one = commit(provider, 0, NO_ID, 1);
    Option<String> two = commit(provider, 1, one);
    Option<String> three = commit(provider, 2, two);
    assertTrue(three.get().startsWith("=3@1_"), three.get());

    for (Option<String> older : List.of(one, two)) {
      for (CairnStateStoreProvider any : List.of(provider, fixture.provider())) {
        Throwable error = assertThrows(Throwable.class, () -> any.getStore(3, older, false, false));
        String text = StoreFixture.chain(error);
        assertTrue(text.contains("CANNOT_READ_STREAMING_STATE_FILE"), text);
        assertTrue(text.contains("CAIRN_MISSING"), text);
        assertThrows(Throwable.class, () -> any.getReadStore(4, older));
      }
    }

    Option<String> four = commit(provider, 3, three, 2);
    StateStore read = fixture.provider().getReadStore(4, four);
    assertEquals(Map.of(1L, "v1@1", 2L, "v2@4"), all(read.iterator("default")));
    read.release();
  }

  /** Spark's state reader passes the ids of a checkpoint of format 2 in a session of format 1. */
  @Test
  void anIdInASessionOfFormatOneIsRefused() {
    Option<String> id = commit(fixture.provider(), 0, NO_ID, 1);
    fixture.settings.put("spark.sql.streaming.stateStore.checkpointFormatVersion", "1");
    CairnStateStoreProvider reader = fixture.provider();

    Throwable error = assertThrows(Throwable.class, () -> reader.getReadStore(1, id));

    String chain = StoreFixture.chain(error);
    assertTrue(chain.contains("CANNOT_LOAD_STATE_STORE"), chain);
    assertTrue(chain.contains("CAIRN_CONFIG"), chain);
    assertTrue(chain.contains("checkpointFormatVersion is 1"), chain);
  }

  /** If two tasks use one store, the second waits; its error names the first. */
  @Test
  void aSecondSessionWaitsUntilTheLockTimeout() throws Exception {
    fixture.settings.put(StoreFixture.CAIRN + "lockTimeoutMs", "300");
    CairnStateStoreProvider provider = fixture.provider();
    StateStore first = provider.getStore(0, NO_ID, false, false);
    AtomicReference<Throwable> error = new AtomicReference<>();

    Thread second =
        new Thread(
            () ->
                error.set(
                    assertThrows(
                        Throwable.class, () -> provider.getStore(0, NO_ID, false, false))));
    second.start();
    second.join();

    assertTrue(
        StoreFixture.chain(error.get()).contains("[CAIRN_BUSY]"), StoreFixture.chain(error.get()));
    // The holder, how long it has had the store, and what it does now.
    String text = StoreFixture.chain(error.get());
    assertTrue(text.contains(Thread.currentThread().getName() + ", which acquired it "), text);
    assertTrue(text.contains("is at java.") && text.contains("Thread.join"), text);
    assertTrue(text.contains("it was requested by " + second.getName()), text);
    first.abort();
    provider.getStore(0, NO_ID, false, false).abort();
  }

  /** With loadEmpty the version appears empty, and the commit creates the next version. */
  @Test
  void loadEmptyIgnoresTheContent() {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commit(provider, 0, NO_ID, 1, 2);
    StateStore store = provider.getStore(1, id, false, true);
    assertEquals(Map.of(), all(store.iterator("default")));
    store.put(key(9), value("only"), "default");

    assertEquals(2, store.commit());

    StateStore read =
        fixture.provider().getReadStore(2, store.getStateStoreCheckpointInfo().stateStoreCkptId());
    assertEquals(Map.of(9L, "only"), all(read.iterator("default")));
    read.release();
  }

  /** The cache would take the version for the empty one that an aborted session began from. */
  @Test
  void theContentIsBackAfterASessionThatIgnoredIt() {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commit(provider, 0, NO_ID, 1, 2);
    provider.getStore(1, id, false, true).abort();

    StateStore store = provider.getStore(1, id, false, false);

    assertEquals(Map.of(1L, "v1@1", 2L, "v2@1"), all(store.iterator("default")));
    store.abort();
  }

  /** A query with other keys on an old checkpoint would read wrong rows. */
  @Test
  void anotherKeySchemaIsRefused() {
    Option<String> id = commit(fixture.provider(), 0, NO_ID, 1);
    CairnStateStoreProvider changed =
        fixture.provider(
            StoreFixture.VALUE,
            StoreFixture.VALUE,
            new NoPrefixKeyStateEncoderSpec(StoreFixture.VALUE),
            false,
            false);

    Throwable error = assertThrows(Throwable.class, () -> changed.getStore(1, id, false, false));

    assertTrue(
        StoreFixture.chain(error).contains("[CAIRN_SCHEMA_MISMATCH]"), StoreFixture.chain(error));
    assertTrue(StoreFixture.chain(error).contains("struct<bigint>"), StoreFixture.chain(error));
  }

  @Test
  void nullsAndUnknownFamiliesAreRefusedAsSparkDoes() {
    StateStore store = fixture.provider().getStore(0, NO_ID, false, false);

    assertThrows(IllegalArgumentException.class, () -> store.put(key(1), null, "default"));
    assertThrows(IllegalArgumentException.class, () -> store.put(null, value("x"), "default"));
    assertThrows(RuntimeException.class, () -> store.get(key(1), "unknown"));
    assertThrows(IllegalArgumentException.class, () -> store.prefixScan(key(1), "default"));
    store.abort();
  }

  /** Iterators of different kinds over several families, as Spark's newer operators use them. */
  @Test
  void multiGetAnswersInTheOrderOfTheKeys() {
    StateStore store = fixture.provider().getStore(0, NO_ID, false, false);
    store.put(key(1), value("a"), "default");
    store.put(key(3), value("c"), "default");
    List<String> answers = new java.util.ArrayList<>();

    scala.collection.Iterator<UnsafeRow> rows =
        StoreFixture.newest(store).multiGet(new UnsafeRow[] {key(3), key(2), key(1)}, "default");
    while (rows.hasNext()) {
      answers.add(text(rows.next()));
    }

    assertEquals(java.util.Arrays.asList("c", null, "a"), answers);
    store.abort();
  }
}
