package io.cairn.spark;

import static io.cairn.spark.StoreFixture.KEY;
import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.VALUE;
import static io.cairn.spark.StoreFixture.key;
import static io.cairn.spark.StoreFixture.newest;
import static io.cairn.spark.StoreFixture.row;
import static io.cairn.spark.StoreFixture.struct;
import static io.cairn.spark.StoreFixture.text;
import static io.cairn.spark.StoreFixture.value;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.errors.CairnException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RangeKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreUnsupportedOperationOnMissingColumnFamily;
import org.apache.spark.sql.execution.streaming.state.TestStateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Column families, lists, and scans in key order, as joins, timers and transformWithState use them.
 */
class FamiliesTest {
  private static final StructType PAIR = struct(DataTypes.LongType, DataTypes.LongType);

  private StoreFixture fixture;

  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture();
  }

  @AfterEach
  void close() throws IOException {
    fixture.close();
  }

  private static KeyStateEncoderSpec plain() {
    return new NoPrefixKeyStateEncoderSpec(KEY);
  }

  private static KeyStateEncoderSpec range(Integer... ordinals) {
    List<Object> boxed = new ArrayList<>(List.of(ordinals));
    return new RangeKeyScanStateEncoderSpec(PAIR, CollectionConverters.asScala(boxed).toSeq());
  }

  private static UnsafeRow pair(long one, long two) {
    return row(PAIR, one, two);
  }

  private static List<String> list(StateStoreIterator<UnsafeRowPair> pairs) {
    List<String> rows = new ArrayList<>();
    while (pairs.hasNext()) {
      UnsafeRowPair pair = pairs.next();
      StringBuilder key = new StringBuilder();
      for (int column = 0; column < pair.key().numFields(); column++) {
        key.append(column == 0 ? "" : "/").append(pair.key().getLong(column));
      }
      rows.add(key + "=" + text(pair.value()));
    }
    pairs.close();
    return rows;
  }

  private static List<String> texts(scala.collection.Iterator<UnsafeRow> rows) {
    List<String> texts = new ArrayList<>();
    while (rows.hasNext()) {
      texts.add(text(rows.next()));
    }
    return texts;
  }

  private Option<String> commit(StateStore store) {
    store.commit();
    return store.getStateStoreCheckpointInfo().stateStoreCkptId();
  }

  /**
   * Negative numbers, and pages of the engine after a reload, must come in the order of the
   * numbers.
   */
  @Test
  void rangeScansGiveTheNumbersOrder() {
    CairnStateStoreProvider provider = fixture.provider(PAIR, VALUE, range(0), false, false);
    StateStore store = provider.getStore(0, NO_ID, false, false);
    for (long at : new long[] {5, -3, 0, 100, -100}) {
      store.put(pair(at, 7), value("t" + at), "default");
    }
    assertEquals(
        List.of("-3/7=t-3", "0/7=t0"),
        list(
            newest(store)
                .rangeScan(Option.apply(pair(-3, 0)), Option.apply(pair(5, 0)), "default")));
    Option<String> id = commit(store);

    StateStore read = fixture.provider(PAIR, VALUE, range(0), false, false).getReadStore(1, id);

    assertEquals(
        List.of("-100/7=t-100", "-3/7=t-3", "0/7=t0", "5/7=t5", "100/7=t100"),
        list(newest(read).rangeScan(Option.empty(), Option.empty(), "default")));
    read.release();
  }

  /** Spark 4.1 and 4.2 end a scan of timers at the first one that is not due. */
  @Test
  void anIteratorOverRangeKeysIsInKeyOrder() {
    CairnStateStoreProvider provider = fixture.provider(PAIR, VALUE, range(0), false, false);
    StateStore first = provider.getStore(0, NO_ID, false, false);
    for (long at : new long[] {5, -3, 100}) {
      first.put(pair(at, 7), value("t" + at), "default");
    }
    Option<String> id = commit(first);
    StateStore second = provider.getStore(1, id, false, false);
    for (long at : new long[] {7, -100, 0}) {
      second.put(pair(at, 7), value("t" + at), "default");
    }

    List<String> found = list(second.iterator("default"));

    assertEquals(
        List.of("-100/7=t-100", "-3/7=t-3", "0/7=t0", "5/7=t5", "7/7=t7", "100/7=t100"), found);
    second.abort();
  }

  /** Spark's encoder loses a boolean among the ordered columns: keys overwrote one another. */
  @ParameterizedTest
  @ValueSource(strings = {"unsaferow", "avro"})
  void rangeScansKeepBooleansAndOrderThem(String encoding) {
    StructType type = struct(DataTypes.BooleanType, DataTypes.LongType, DataTypes.BooleanType);
    fixture.settings.put("spark.sql.streaming.stateStore.encodingFormat", encoding);
    TestStateSchemaProvider schemas = new TestStateSchemaProvider();
    schemas.captureSchema("default", type, VALUE, (short) 0, (short) 0);
    fixture.schemas = Option.apply(schemas);
    List<Object> ordinals = new ArrayList<>(List.of(0, 1));
    KeyStateEncoderSpec spec =
        new RangeKeyScanStateEncoderSpec(type, CollectionConverters.asScala(ordinals).toSeq());
    CairnStateStoreProvider provider = fixture.provider(type, VALUE, spec, false, false);
    StateStore store = provider.getStore(0, NO_ID, false, false);
    List<String> expected = new ArrayList<>();
    for (Boolean first : new Boolean[] {false, true, null}) {
      for (long second : new long[] {-1, 0, 1}) {
        for (Boolean last : new Boolean[] {false, true}) {
          UnsafeRow key = row(type, first, second, last);
          String name = first + "/" + second + "/" + last;
          assertNull(store.get(key, "default"), name);
          store.put(key, value(name), "default");
          expected.add(name + "=" + name);
        }
      }
    }
    Option<String> id = commit(store);

    StateStore read = fixture.provider(type, VALUE, spec, false, false).getReadStore(1, id);

    // Of keys that are equal in the ordered columns, the order is not defined.
    assertEquals(
        expected, booleans(newest(read).rangeScan(Option.empty(), Option.empty(), "default")));
    assertEquals(
        expected.subList(6, 12),
        booleans(
            newest(read)
                .rangeScan(
                    Option.apply(row(type, true, -1L, false)),
                    Option.apply(row(type, true, 2L, false)),
                    "default")));
    assertEquals("true/0/true", text(read.get(row(type, true, 0L, true), "default")));
    read.release();
  }

  private static List<String> booleans(StateStoreIterator<UnsafeRowPair> pairs) {
    List<String> rows = new ArrayList<>();
    while (pairs.hasNext()) {
      UnsafeRow key = pairs.next().key();
      Boolean first = key.isNullAt(0) ? null : Boolean.valueOf(key.getBoolean(0));
      rows.add(first + "/" + key.getLong(1) + "/" + key.getBoolean(2));
    }
    pairs.close();
    List<String> sorted = new ArrayList<>();
    for (int pair = 0; pair < rows.size(); pair += 2) {
      rows.subList(pair, pair + 2).stream()
          .sorted()
          .map(key -> key + "=" + key)
          .forEach(sorted::add);
    }
    return sorted;
  }

  @Test
  void deleteRangeRemovesTheKeysBetweenItsEnds() {
    StateStore store =
        fixture.provider(PAIR, VALUE, range(0), false, false).getStore(0, NO_ID, false, false);
    for (long at = 0; at < 6; at++) {
      store.put(pair(at, 0), value("t" + at), "default");
    }

    newest(store).deleteRange(pair(1, 0), pair(4, 0), "default");

    assertEquals(
        List.of("0/0=t0", "4/0=t4", "5/0=t5"),
        list(newest(store).rangeScan(Option.empty(), Option.empty(), "default")));
    store.abort();
  }

  @Test
  void prefixScansGiveExactlyTheirPrefix() {
    StateStore store =
        fixture
            .provider(PAIR, VALUE, new PrefixKeyScanStateEncoderSpec(PAIR, 1), false, false)
            .getStore(0, NO_ID, false, false);
    store.put(pair(1, 1), value("a"), "default");
    store.put(pair(1, 2), value("b"), "default");
    store.put(pair(256, 1), value("c"), "default");

    List<String> found = list(store.prefixScan(key(1), "default"));

    assertEquals(List.of("1/1=a", "1/2=b"), found);
    assertEquals(List.of(), list(store.prefixScan(key(2), "default")));
    store.abort();
  }

  /** An append reads neither the list nor the engine, and must keep the order of the list. */
  @Test
  void listsKeepTheOrderOfTheirAppendsAcrossVersions() {
    CairnStateStoreProvider provider = fixture.familyProvider();
    StateStore store = provider.getStore(0, NO_ID, false, false);
    store.createColFamilyIfAbsent("lists", KEY, VALUE, plain(), true, false);
    store.mergeList(key(1), new UnsafeRow[] {value("a"), value("b")}, "lists");
    store.merge(key(1), value("c"), "lists");
    store.putList(key(2), new UnsafeRow[] {value("x")}, "lists");
    Option<String> one = commit(store);
    StateStore second = provider.getStore(1, one, false, false);
    second.createColFamilyIfAbsent("lists", KEY, VALUE, plain(), true, false);
    second.merge(key(1), value("d"), "lists");
    assertEquals(List.of("a", "b", "c", "d"), texts(second.valuesIterator(key(1), "lists")));
    Option<String> two = commit(second);
    assertEquals(2, second.metrics().numKeys());

    CairnStateStoreProvider other = fixture.familyProvider();
    StateStore read = other.getReadStore(2, two);
    newest(read).registerColFamily("lists", KEY, VALUE, plain(), true, false);
    read.release();
    read = other.getReadStore(2, two);

    assertEquals(List.of("a", "b", "c", "d"), texts(read.valuesIterator(key(1), "lists")));
    assertEquals(List.of(), texts(read.valuesIterator(key(3), "lists")));
    assertEquals(
        List.of("1=a", "1=b", "1=c", "1=d", "2=x"),
        list(newest(read).iteratorWithMultiValues("lists")).stream().sorted().toList());
    read.release();
  }

  /** The list is never in one array, so it must be refused before its elements are joined. */
  @Test
  void aListLargerThanAFrameIsRefused() {
    StateStore store = fixture.familyProvider().getStore(0, NO_ID, false, false);
    store.createColFamilyIfAbsent("lists", KEY, VALUE, plain(), true, false);
    UnsafeRow[] large = new UnsafeRow[3];
    Arrays.fill(large, value("x".repeat(25 << 20)));

    CairnException error =
        assertThrows(CairnException.class, () -> store.mergeList(key(1), large, "lists"));

    assertEquals("CAIRN_ROW_TOO_LARGE", error.code());
    assertTrue(error.getMessage().contains("0/0/default, version=1)"), error.getMessage());
    store.abort();
  }

  /**
   * Spark asks for the names on a thread of its own choice; PySpark creates families on another.
   */
  @Test
  void namesCanBeReadWhileAnotherThreadCreatesFamilies() throws Exception {
    StateStore store = fixture.familyProvider().getStore(0, NO_ID, false, false);
    CompletableFuture<Void> created =
        CompletableFuture.runAsync(
            () -> {
              for (int i = 0; i < 2_000; i++) {
                store.createColFamilyIfAbsent("f" + i, KEY, VALUE, plain(), false, false);
              }
            });

    while (!created.isDone()) {
      assertTrue(newest(store).allColumnFamilyNames().contains("default"));
    }

    created.get();
    assertEquals(2_001, newest(store).allColumnFamilyNames().size());
    store.abort();
  }

  /**
   * Spark's reader of all families registers those of the schema file. One that no task has created
   * is empty; without registration its name stays an error.
   */
  @Test
  void aRegisteredFamilyThatTheVersionLacksIsEmpty() {
    StateStore store = fixture.familyProvider().getStore(0, NO_ID, false, false);
    store.createColFamilyIfAbsent("a", KEY, VALUE, plain(), false, false);
    store.put(key(1), value("in a"), "a");
    Option<String> one = commit(store);
    CairnStateStoreProvider provider = fixture.familyProvider();
    StateStore read = provider.getReadStore(1, one);

    newest(read).registerColFamily("a", KEY, VALUE, plain(), false, false);
    newest(read).registerColFamily("$counter", KEY, VALUE, plain(), false, true);

    assertEquals(
        Set.of("default", "a"), CollectionConverters.asJava(newest(read).allColumnFamilyNames()));
    assertEquals(List.of("1=in a"), list(read.iterator("a")));
    assertEquals(List.of(), list(read.iterator("$counter")));
    assertNull(read.get(key(1), "$counter"));
    assertThrows(
        StateStoreUnsupportedOperationOnMissingColumnFamily.class, () -> read.iterator("$other"));
    read.release();

    StateStore second = provider.getReadStore(1, one);
    assertEquals(List.of(), list(second.iterator("$counter")));
    second.release();
  }

  /** Families belong to a version: an older version has its own, and no id is used again. */
  @Test
  void familiesRollBackWithTheirVersion() {
    CairnStateStoreProvider provider = fixture.familyProvider();
    StateStore first = provider.getStore(0, NO_ID, false, false);
    first.createColFamilyIfAbsent("a", KEY, VALUE, plain(), false, false);
    first.put(key(1), value("in a"), "a");
    Option<String> one = commit(first);
    StateStore aborted = provider.getStore(1, one, false, false);
    aborted.createColFamilyIfAbsent("b", KEY, VALUE, plain(), false, false);
    aborted.abort();
    StateStore dropping = provider.getStore(1, one, false, false);
    assertTrue(dropping.removeColFamilyIfExists("a"));
    assertFalse(dropping.removeColFamilyIfExists("a"));
    Option<String> two = commit(dropping);

    StateStore third = provider.getStore(2, two, false, false);
    assertEquals("Set(default)", newest(third).allColumnFamilyNames().toString());
    third.createColFamilyIfAbsent("a", KEY, VALUE, plain(), false, false);
    assertNull(
        third.get(key(1), "a"), "a family that is created again shows the keys of the dropped one");
    third.abort();

    StateStore old = fixture.familyProvider().getStore(1, one, false, false);
    old.createColFamilyIfAbsent("a", KEY, VALUE, plain(), false, false);
    assertEquals("in a", text(old.get(key(1), "a")));
    old.abort();
  }

  /** Programs ask for metrics by the names of Spark's provider. */
  @Test
  void metricsHaveTheNamesOfSparksProviderToo() {
    StateStore store = fixture.familyProvider().getStore(0, NO_ID, true, false);
    store.createColFamilyIfAbsent("a", KEY, VALUE, plain(), false, false);
    store.createColFamilyIfAbsent("$index", KEY, VALUE, plain(), false, true);
    store.put(key(1), value("in a"), "a");
    store.put(key(2), value("in a"), "a");
    store.put(key(1), value("internal"), "$index");
    store.get(key(1), "a");
    commit(store);

    Map<String, Long> metrics = new TreeMap<>();
    CollectionConverters.asJava(store.metrics().customMetrics())
        .forEach((metric, value) -> metrics.put(metric.name(), (Long) value));

    assertEquals(1, metrics.get("rocksdbNumInternalColFamiliesKeys"));
    assertEquals(1, metrics.get("rocksdbNumInternalColumnFamilies"));
    assertEquals(2, metrics.get("rocksdbNumExternalColumnFamilies"), "default and a");
    assertEquals(1, metrics.get("rocksdbForceSnapshotCount"));
    assertEquals(3, metrics.get("rocksdbPutCount"));
    assertEquals(metrics.get("cairnReads"), metrics.get("rocksdbGetCount"));
    assertEquals(metrics.get("cairnLoadMs"), metrics.get("rocksdbLoadLatencyMs"));
    assertEquals(metrics.get("cairnSstBytes"), metrics.get("rocksdbSstFileSize"));
    assertEquals(0, metrics.get("rocksdbNumReplayChangelogFiles"));
  }

  /** Two state variables of one name would read each other's rows as their own types. */
  @Test
  void aFamilyCreatedTwiceWithOtherTypesIsRefusedAndKeepsItsRows() {
    StateStore store = fixture.familyProvider().getStore(0, NO_ID, false, false);
    store.createColFamilyIfAbsent("f", KEY, VALUE, plain(), false, false);
    store.put(key(1), value("x"), "f");
    NoPrefixKeyStateEncoderSpec pairs = new NoPrefixKeyStateEncoderSpec(PAIR);

    List<Executable> others =
        List.of(
            () -> store.createColFamilyIfAbsent("f", PAIR, VALUE, pairs, false, false),
            () -> store.createColFamilyIfAbsent("f", KEY, PAIR, plain(), false, false),
            () -> store.createColFamilyIfAbsent("f", KEY, VALUE, plain(), true, false));
    for (Executable other : others) {
      String error = StoreFixture.chain(assertThrows(CairnException.class, other));
      assertTrue(error.contains("[CAIRN_SCHEMA_MISMATCH] column family 'f' was created"), error);
      assertTrue(error.contains("store="), error);
      assertTrue(error.contains("Next: "), error);
    }

    store.createColFamilyIfAbsent("f", KEY, VALUE, plain(), false, false);
    assertEquals("x", text(store.get(key(1), "f")));
    store.abort();
  }

  /** What was dropped has no rows: its name is free. */
  @Test
  void aFamilyThatWasDroppedMayBeCreatedWithOtherTypes() {
    StateStore store = fixture.familyProvider().getStore(0, NO_ID, false, false);
    store.createColFamilyIfAbsent("f", KEY, VALUE, plain(), false, false);
    store.put(key(1), value("x"), "f");

    store.removeColFamilyIfExists("f");
    store.createColFamilyIfAbsent("f", KEY, PAIR, plain(), false, false);
    store.put(key(2), pair(3, 4), "f");

    assertEquals(2, store.get(key(2), "f").numFields());
    assertNull(store.get(key(1), "f"));
    store.abort();
  }

  /** Spark's state reader declares other keys for the unused default family of newer joins. */
  @Test
  void aFamilyWithoutKeysMayBeDeclaredWithOtherKeysAndOneWithKeysMayNot() {
    CairnStateStoreProvider provider = fixture.familyProvider();
    StateStore first = provider.getStore(0, NO_ID, false, false);
    first.createColFamilyIfAbsent("f", KEY, VALUE, plain(), false, false);
    Option<String> one = commit(first);
    StateStore second =
        fixture.provider(PAIR, VALUE, range(0), true, false).getStore(1, one, false, false);
    second.put(pair(1, 2), value("x"), "default");
    assertEquals(
        List.of("1/2=x"),
        list(newest(second).rangeScan(Option.empty(), Option.empty(), "default")));
    Option<String> two = commit(second);

    StateStore read = fixture.provider(PAIR, VALUE, range(0), true, false).getReadStore(2, two);
    assertEquals(List.of("1/2=x"), list(read.iterator("default")));
    read.release();
    assertThrows(Throwable.class, () -> fixture.familyProvider().getReadStore(2, two));
  }

  /** A later batch must find the family as the one before has left it. */
  @Test
  void anEmptyDefaultFamilyMayBeginToHaveLists() {
    StateStore single = fixture.familyProvider().getStore(0, NO_ID, false, false);
    single.put(key(1), value("a"), "default");
    single.remove(key(1), "default");
    Option<String> one = commit(single);
    CairnStateStoreProvider provider =
        fixture.provider(KEY, VALUE, new NoPrefixKeyStateEncoderSpec(KEY), true, true);

    StateStore lists = provider.getStore(1, one, false, false);
    lists.merge(key(9), value("b"), "default");
    Option<String> two = commit(lists);
    StateStore next = provider.getStore(2, two, false, false);

    assertEquals("b", text(next.valuesIterator(key(9), "default").next()));
    assertFalse(next.valuesIterator(key(1), "default").hasNext());
    next.abort();
  }

  /** Spark's state reader declares one value per key for the unused default family of lists. */
  @Test
  void theEmptyDefaultFamilyMayBeDeclaredWithoutLists() {
    for (String counts : List.of("true", "false")) {
      fixture.settings.put("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", counts);
      StateStore lists =
          fixture.provider(KEY, VALUE, plain(), true, true).getStore(0, NO_ID, false, false);
      lists.createColFamilyIfAbsent("f", KEY, VALUE, plain(), false, false);
      lists.put(key(1), value("a"), "f");
      Option<String> one = commit(lists);

      StateStore read = fixture.provider(PAIR, VALUE, range(0), true, false).getReadStore(1, one);
      assertEquals(List.of(), list(read.iterator("default")));
      read.release();
    }
  }

  /** A family that keeps lists stays one, also without keys: its chunks are not values. */
  @Test
  void anotherFamilyKeepsItsLists() {
    StateStore lists = fixture.familyProvider().getStore(0, NO_ID, false, false);
    lists.createColFamilyIfAbsent("f", KEY, VALUE, plain(), true, false);
    Option<String> one = commit(lists);

    StateStore second = fixture.familyProvider().getStore(1, one, false, false);
    assertThrows(
        Throwable.class,
        () -> second.createColFamilyIfAbsent("f", KEY, VALUE, plain(), false, false));
    second.abort();
  }

  /** Without counts a family may have keys, so a declaration of other keys is refused. */
  @Test
  void aFamilyWithoutACountIsCompared() {
    fixture.settings.put("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", "false");
    Option<String> one = StoreFixture.commit(fixture.provider(), 0, NO_ID, 1);

    assertThrows(
        Throwable.class,
        () -> fixture.provider(PAIR, VALUE, range(0), false, false).getReadStore(1, one));
  }

  /** Spark's row count excludes the families that Spark uses internally. */
  @Test
  void keysOfInternalFamiliesAreNotCounted() {
    StateStore store = fixture.familyProvider().getStore(0, NO_ID, false, false);
    store.createColFamilyIfAbsent("$ttl", KEY, VALUE, plain(), false, true);
    store.createColFamilyIfAbsent("seen", KEY, VALUE, plain(), false, false);
    store.put(key(1), value("x"), "$ttl");
    store.put(key(2), value("x"), "$ttl");
    store.put(key(1), value("x"), "seen");

    store.commit();

    assertEquals(1, store.metrics().numKeys());
  }

  @Test
  void namesThatSparkRefusesAreRefused() {
    StateStore families = fixture.familyProvider().getStore(0, NO_ID, false, false);
    for (String name : new String[] {"", " x", "default", "$own"}) {
      assertThrows(
          RuntimeException.class,
          () -> families.createColFamilyIfAbsent(name, KEY, VALUE, plain(), false, false),
          name);
    }
    families.abort();
    StateStore plain = fixture.provider().getStore(0, NO_ID, false, false);
    assertThrows(
        RuntimeException.class,
        () -> plain.createColFamilyIfAbsent("x", KEY, VALUE, plain(), false, false));
    plain.abort();
  }

  /** The state data source's snapshotStartBatchId: a named snapshot, and the changes after it. */
  @Test
  void aVersionIsLoadedFromANamedSnapshotAndLaterChanges() {
    CairnStateStoreProvider provider = fixture.provider();
    StateStore first = provider.getStore(0, NO_ID, true, false);
    first.put(key(1), value("a"), "default");
    Option<String> one = commit(first);
    Option<String> two = StoreFixture.commit(provider, 1, one, 2);

    StateStore read = (StateStore) fixture.provider().replayReadStateFromSnapshot(1, 2, one, two);

    assertEquals(
        List.of("1=a", "2=v2@2"), list(read.iterator("default")).stream().sorted().toList());
    read.release();
    // No snapshot of version 2 was stored.
    for (Option<String> id : List.of(two, NO_ID)) {
      StateStore later = (StateStore) fixture.provider().replayReadStateFromSnapshot(2, 2, id, two);
      assertEquals(2, list(later.iterator("default")).size());
      later.release();
    }
    Option<String> other = Option.apply("u" + "0".repeat(32));
    Throwable missing =
        assertThrows(
            Throwable.class,
            () -> fixture.provider().replayReadStateFromSnapshot(1, 2, other, two));
    String text = StoreFixture.chain(missing);
    assertTrue(text.contains("CANNOT_READ_MISSING_SNAPSHOT_FILE"), text);
    assertTrue(text.contains("snapshot/1_" + other.get()), text);
    for (long[] versions : new long[][] {{0, 1}, {2, 1}, {-1, 1}}) {
      Throwable wrong =
          assertThrows(
              Throwable.class,
              () ->
                  fixture
                      .provider()
                      .replayReadStateFromSnapshot(versions[0], versions[1], one, one));
      assertTrue(
          StoreFixture.chain(wrong).contains("UNEXPECTED_VERSION"), StoreFixture.chain(wrong));
    }
  }
}
