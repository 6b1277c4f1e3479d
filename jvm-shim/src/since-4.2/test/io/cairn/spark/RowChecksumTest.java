package io.cairn.spark;

import static io.cairn.spark.StoreFixture.KEY;
import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.VALUE;
import static io.cairn.spark.StoreFixture.all;
import static io.cairn.spark.StoreFixture.key;
import static io.cairn.spark.StoreFixture.text;
import static io.cairn.spark.StoreFixture.value;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RecordType;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangeDataReader;
import org.apache.spark.sql.execution.streaming.state.StateStoreRowChecksumVerificationFailed;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;

/** Row checksums: the rows are the same, and a value that is not the key's own is found. */
class RowChecksumTest {
  private static final String SETTING = "spark.sql.streaming.stateStore.rowChecksum.";

  private StoreFixture fixture;

  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture();
    fixture.settings.put(SETTING + "enabled", "true");
    fixture.settings.put(SETTING + "readVerificationRatio", "1");
  }

  @AfterEach
  void close() throws IOException {
    fixture.close();
  }

  private CairnStateStoreProvider lists() {
    return fixture.provider(KEY, VALUE, new NoPrefixKeyStateEncoderSpec(KEY), true, true);
  }

  private static List<String> texts(scala.collection.Iterator<UnsafeRow> rows) {
    List<String> texts = new ArrayList<>();
    while (rows.hasNext()) {
      texts.add(text(rows.next()));
    }
    return texts;
  }

  private static Option<String> commit(StateStore store) {
    store.commit();
    return store.getStateStoreCheckpointInfo().stateStoreCkptId();
  }

  /** Random puts and removes over many versions, read from cache and worker, equal a map's. */
  @Test
  void valuesEqualAModel() throws Exception {
    fixture.withLeastCache().withOwnWorker();
    Random random = new Random(7);
    Map<Long, String> model = new TreeMap<>();
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = NO_ID;
    for (int version = 0; version < 12; version++) {
      StateStore store = provider.getStore(version, id, version % 4 == 3, false);
      for (int call = 0; call < 400; call++) {
        long key = random.nextInt(600);
        if (random.nextInt(4) == 0) {
          store.remove(key(key), "default");
          model.remove(key);
        } else {
          String text = "v" + "x".repeat(random.nextInt(40)) + version + "/" + call;
          store.put(key(key), value(text), "default");
          model.put(key, text);
        }
        long read = random.nextInt(600);
        assertEquals(model.get(read), text(store.get(key(read), "default")));
      }
      assertEquals(model, all(store.iterator("default")));
      id = commit(store);
      if (version == 5) {
        fixture.killWorkers();
      }
      if (version % 3 == 0) {
        provider = fixture.provider();
      }
    }

    StateStore read = provider.getReadStore(12, id);
    assertEquals(model, all(read.iterator("default")));
    assertEquals(model.size(), read.metrics().numKeys());
    read.release();
  }

  /** Each element of a list has its own checksum; appends need not read the list. */
  @Test
  void listsKeepTheirElements() {
    CairnStateStoreProvider provider = lists();
    StateStore store = provider.getStore(0, NO_ID, false, false);
    store.putList(key(1), new UnsafeRow[] {value("a"), value("b")}, "default");
    store.merge(key(1), value("c"), "default");
    store.merge(key(2), value("d"), "default");
    Option<String> one = commit(store);
    StateStore next = lists().getStore(1, one, false, false);
    next.mergeList(key(1), new UnsafeRow[] {value("e"), value("f")}, "default");
    assertEquals(List.of("a", "b", "c", "e", "f"), texts(next.valuesIterator(key(1), "default")));
    Option<String> two = commit(next);

    StateStore read = lists().getReadStore(2, two);

    assertEquals(List.of("a", "b", "c", "e", "f"), texts(read.valuesIterator(key(1), "default")));
    assertEquals(List.of("d"), texts(read.valuesIterator(key(2), "default")));
    assertEquals("a", text(read.get(key(1), "default")));
    assertEquals(List.of(), texts(read.valuesIterator(key(3), "default")));
    List<String> pairs = new ArrayList<>();
    var all = read.iteratorWithMultiValues("default");
    while (all.hasNext()) {
      var pair = all.next();
      pairs.add(pair.key().getLong(0) + "=" + text(pair.value()));
    }
    assertEquals(
        List.of("1=a", "1=b", "1=c", "1=e", "1=f", "2=d"), pairs.stream().sorted().toList());
    read.release();
  }

  @Test
  void changesAreReadWithoutTheirChecksums() {
    CairnStateStoreProvider provider = lists();
    StateStore store = provider.getStore(0, NO_ID, false, false);
    store.putList(key(1), new UnsafeRow[] {value("a"), value("b")}, "default");
    Option<String> one = commit(store);
    StateStore next = provider.getStore(1, one, false, false);
    next.merge(key(1), value("c"), "default");
    next.remove(key(2), "default");
    Option<String> two = commit(next);

    StateStoreChangeDataReader reader =
        provider.getStateStoreChangeDataReader(1, 2, Option.apply("default"), two);
    List<String> changes = new ArrayList<>();
    while (reader.hasNext()) {
      var change = reader.next();
      String kind = change._1() == RecordType.MERGE_RECORD() ? "merge" : "put";
      changes.add(change._4() + " " + kind + " " + text(change._3()));
    }
    reader.close();

    assertEquals(List.of("0 put a", "0 merge b", "1 merge c"), changes);
  }

  /**
   * The checksums of objects do not see bytes that change in the worker's memory, or a value under
   * another key.
   */
  @Test
  void aChangedValueIsFoundWhereverItChanged() throws Exception {
    fixture.withOwnWorker().withLeastCache();
    CairnStateStoreProvider writer = fixture.provider();
    StateStore store = writer.getStore(0, NO_ID, true, false);
    store.put(key(1), value("first"), "default");
    store.put(key(2), value("other"), "default");
    Option<String> id = commit(store);
    writer.close();
    // The worker answers with the last byte of each value changed.
    fixture.patchEngine(
        """
        import pyarrow as pa
        from cairn.store.rows import reads
        page = reads.Page
        def changed(rows, through):
            origins, keys, values = rows.columns
            values = [value[:-1] + bytes([value[-1] ^ 1]) for value in values.to_pylist()]
            columns = [origins, keys, pa.array(values, pa.binary())]
            return page(pa.RecordBatch.from_arrays(columns, schema=rows.schema), through)
        reads.Page = changed
        """);

    StateStore read = fixture.provider().getReadStore(1, id);
    Throwable error =
        assertThrows(
            StateStoreRowChecksumVerificationFailed.class, () -> read.get(key(1), "default"));

    assertEquals(1, error.getSuppressed().length);
    String text = error.getSuppressed()[0].getMessage();
    assertTrue(text.contains("[CAIRN_CORRUPT]") && text.contains("store=0/0/default"), text);
    assertTrue(text.contains("version=1") && text.contains("Next:"), text);
    read.release();
  }

  /** Without the setting the rows of a checkpoint with checksums would be read with wrong bytes. */
  @Test
  void anotherSettingForAnExistingCheckpointIsRefused() {
    Option<String> id = StoreFixture.commit(fixture.provider(), 0, NO_ID, 1);
    fixture.settings.put(SETTING + "enabled", "false");

    Throwable error =
        assertThrows(
            Throwable.class, () -> fixture.provider().getStore(1, id, false, false).abort());

    String text = StoreFixture.chain(error);
    assertTrue(text.contains("[CAIRN_SCHEMA_MISMATCH]"), text);
    assertTrue(text.contains("unsaferow with row checksums"), text);
    assertTrue(text.contains("rowChecksum.enabled"), text);
  }

  /** A family without rows may change: nothing of it is stored. */
  @Test
  void theSettingMayChangeWhileTheStateIsEmpty() {
    StateStore first = fixture.provider().getStore(0, NO_ID, false, false);
    first.put(key(1), value("x"), "default");
    first.remove(key(1), "default");
    Option<String> one = commit(first);
    fixture.settings.put(SETTING + "enabled", "false");

    Option<String> two = StoreFixture.commit(fixture.provider(), 1, one, 2);
    StateStore read = fixture.provider().getReadStore(2, two);

    assertEquals("v2@2", text(read.get(key(2), "default")));
    assertNull(read.get(key(1), "default"));
    read.release();
  }
}
