package io.cairn.spark;

import static io.cairn.spark.StoreFixture.KEY;
import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.VALUE;
import static io.cairn.spark.StoreFixture.key;
import static io.cairn.spark.StoreFixture.struct;
import static io.cairn.spark.StoreFixture.text;
import static io.cairn.spark.StoreFixture.value;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RecordType;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangeDataReader;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Enumeration;
import scala.Option;
import scala.Tuple4;

/** The change feed of the state data source: {@code readChangeFeed}. */
class ChangeFeedTest {
  private StoreFixture fixture;

  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture();
  }

  @AfterEach
  void close() throws IOException {
    fixture.close();
  }

  /** Each version's writes have their kind and batch. */
  @Test
  void theChangeFeedHasEachVersionsWrites() {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> one = StoreFixture.commit(provider, 0, NO_ID, 1, 2);
    StateStore store = provider.getStore(1, one, false, false);
    store.remove(key(1), "default");
    Option<String> two = commit(store);

    assertEquals(
        List.of("0 put 1 v1@1", "0 put 2 v2@1", "1 delete 1 null"),
        changes(provider.getStateStoreChangeDataReader(1, 2, Option.empty(), two)).stream()
            .sorted()
            .toList());
    provider.getStore(2, two, false, false).abort();
  }

  /** One record per value: those after the first must not replace it when they are applied. */
  @Test
  void theChangeFeedOfAListReplacesItOnce() {
    CairnStateStoreProvider provider = fixture.familyProvider();
    StateStore first = provider.getStore(0, NO_ID, false, false);
    first.createColFamilyIfAbsent(
        "f", KEY, VALUE, new NoPrefixKeyStateEncoderSpec(KEY), true, false);
    first.putList(key(1), new UnsafeRow[] {value("a"), value("b"), value("c")}, "f");
    Option<String> one = commit(first);
    StateStore second = provider.getStore(1, one, false, false);
    second.mergeList(key(1), new UnsafeRow[] {value("d"), value("e")}, "f");
    Option<String> two = commit(second);
    StateStore third = provider.getStore(2, two, false, false);
    third.putList(key(1), new UnsafeRow[] {value("f")}, "f");
    Option<String> three = commit(third);

    assertEquals(
        List.of(
            "0 put 1 a", "0 merge 1 b", "0 merge 1 c", "1 merge 1 d", "1 merge 1 e", "2 put 1 f"),
        changes(provider.getStateStoreChangeDataReader(1, 3, Option.apply("f"), three)));
  }

  /** The state may be too large for this machine, and the feed needs none of it. */
  @Test
  void theChangeFeedNeedsNothingButItsChangelogs() throws IOException {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> one = StoreFixture.commit(provider, 0, NO_ID, 1);
    Option<String> two = StoreFixture.commit(provider, 1, one, 2);
    Option<String> three = StoreFixture.commit(provider, 2, two, 3);
    Files.delete(fixture.folder.resolve("state/0/0/changelog/1_" + one.get() + ".arrow"));
    CairnStateStoreProvider reader = fixture.provider();

    assertEquals(
        List.of("1 put 2 v2@2", "2 put 3 v3@3"),
        changes(reader.getStateStoreChangeDataReader(2, 3, Option.empty(), three)));
    assertThrows(Throwable.class, () -> reader.getReadStore(3, three));
  }

  /** Its lock is free again, and the version that it did not load is not taken for loaded. */
  @Test
  void aStoreIsReadAfterItsChangeFeed() throws Exception {
    fixture.withOwnWorker();
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> one = StoreFixture.commit(provider, 0, NO_ID, 1);
    fixture.killWorkers();

    assertEquals(
        List.of("0 put 1 v1@1"),
        changes(provider.getStateStoreChangeDataReader(1, 1, Option.empty(), one)));

    assertEquals(List.of("v1@1"), StoreFixture.read(provider, 1, one, 1));
  }

  @Test
  void aChangeFeedContinuesInAnotherWorker() throws Exception {
    fixture.withOwnWorker();
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> one = StoreFixture.commit(provider, 0, NO_ID, 1);
    Option<String> two = StoreFixture.commit(provider, 1, one, 2);
    StateStoreChangeDataReader reader =
        provider.getStateStoreChangeDataReader(1, 2, Option.empty(), two);
    assertEquals(1, reader.next()._2().getLong(0));

    fixture.killWorkers();

    assertEquals(List.of("1 put 2 v2@2"), changes(reader));
    assertEquals(List.of("v1@1", "v2@2"), StoreFixture.read(provider, 2, two, 1, 2));
  }

  /** It would return wrong rows. */
  @Test
  void aChangeFeedOfOtherKeysIsRefused() {
    Option<String> one = StoreFixture.commit(fixture.provider(), 0, NO_ID, 1);
    StructType names = struct(DataTypes.StringType);
    CairnStateStoreProvider other =
        fixture.provider(names, VALUE, new NoPrefixKeyStateEncoderSpec(names), false, false);

    Throwable error =
        assertThrows(
            Throwable.class, () -> other.getStateStoreChangeDataReader(1, 1, Option.empty(), one));

    String text = StoreFixture.chain(error);
    assertTrue(text.contains("CAIRN_SCHEMA_MISMATCH"), text);
    assertTrue(text.contains("store=0/0/default, version=1"), text);
  }

  @Test
  void aChangeFeedOfImpossibleVersionsIsRefused() {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> one = StoreFixture.commit(provider, 0, NO_ID, 1);
    for (long[] versions : new long[][] {{0, 1}, {2, 1}}) {
      Throwable error =
          assertThrows(
              Throwable.class,
              () ->
                  provider.getStateStoreChangeDataReader(
                      versions[0], versions[1], Option.empty(), one));
      assertTrue(StoreFixture.chain(error).contains("UNEXPECTED_VERSION"));
    }
  }

  private static Option<String> commit(StateStore store) {
    store.commit();
    return store.getStateStoreCheckpointInfo().stateStoreCkptId();
  }

  private static List<String> changes(StateStoreChangeDataReader reader) {
    List<String> changes = new ArrayList<>();
    while (reader.hasNext()) {
      Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object> change = reader.next();
      String kind =
          change._1() == RecordType.PUT_RECORD()
              ? "put"
              : change._1() == RecordType.MERGE_RECORD() ? "merge" : "delete";
      changes.add(
          change._4() + " " + kind + " " + change._2().getLong(0) + " " + text(change._3()));
    }
    reader.close();
    return changes;
  }
}
