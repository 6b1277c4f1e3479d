package io.cairn.spark;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.row;
import static io.cairn.spark.StoreFixture.struct;
import static io.cairn.spark.StoreFixture.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import scala.Option;

/**
 * Keys and values of a kilobyte to 20 MB, of one length and of several; the engine's tests have
 * larger ones.
 */
class LargeRowsTest {
  private static final StructType TEXT = struct(DataTypes.StringType);
  private static final int BATCHES = 4;

  private final Random random = new Random(7);
  private StoreFixture fixture;

  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture();
    fixture.settings.put(StoreFixture.CAIRN + "cacheMemory", "16m");
    fixture.settings.put("spark.sql.streaming.stateStore.minDeltasForSnapshot", "2");
  }

  @AfterEach
  void close() throws IOException {
    fixture.close();
  }

  private CairnStateStoreProvider provider() {
    return fixture.provider(TEXT, TEXT, new NoPrefixKeyStateEncoderSpec(TEXT), false, false);
  }

  private static UnsafeRow of(String text) {
    return row(TEXT, UTF8String.fromString(text));
  }

  /** A text that begins, or ends, with its number. */
  private String numbered(int number, int length, boolean isVaried) {
    int size = isVaried ? length - random.nextInt(length / 2) : length;
    String digits = Integer.toString(number + 1000);
    String filler = "x".repeat(Math.max(0, size - digits.length()));
    return number % 2 == 0 ? digits + filler : filler + digits;
  }

  private static TreeMap<String, String> rows(StateStore store) {
    TreeMap<String, String> found = new TreeMap<>();
    StateStoreIterator<UnsafeRowPair> pairs = store.iterator("default");
    while (pairs.hasNext()) {
      UnsafeRowPair pair = pairs.next();
      found.put(text(pair.key()), text(pair.value()));
    }
    pairs.close();
    return found;
  }

  @ParameterizedTest
  @CsvSource({
    "1024, 8, 400, false",
    "1024, 1024, 400, true",
    "200000, 8, 20, false",
    "200000, 1024, 20, true",
    "8, 200000, 20, true",
    "3000000, 3000000, 2, false",
    "3000000, 8, 6, true",
    "8, 20000000, 1, false",
    "20000000, 8, 1, false",
  })
  void batchesOfLargeRowsEqualAMap(int keyLength, int valueLength, int count, boolean isVaried) {
    CairnStateStoreProvider provider = provider();
    List<String> keys = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      keys.add(numbered(i, keyLength, isVaried && keyLength > 8));
    }
    TreeMap<String, String> model = new TreeMap<>();
    Option<String> id = NO_ID;
    for (int batch = 0; batch < BATCHES; batch++) {
      StateStore store = provider.getStore(batch, id, false, false);
      for (String key : keys) {
        assertEquals(model.get(key), text(store.get(of(key), "default")));
        if (random.nextInt(4) == 0) {
          store.remove(of(key), "default");
          model.remove(key);
        } else {
          String value = numbered(batch, valueLength, isVaried && valueLength > 8);
          store.put(of(key), of(value), "default");
          model.put(key, value);
        }
      }
      assertTrue(model.equals(rows(store)), "the rows of the session");
      store.commit();
      assertEquals(model.size(), store.metrics().numKeys());
      id = store.getStateStoreCheckpointInfo().stateStoreCkptId();
      provider.doMaintenance();
    }

    // Another instance loads the version from the checkpoint.
    StateStore again = provider().getStore(BATCHES, id, false, false);
    assertTrue(model.equals(rows(again)), "the rows of the loaded version");
    assertNull(again.get(of("absent" + keys.get(0)), "default"));
    again.abort();
  }
}
