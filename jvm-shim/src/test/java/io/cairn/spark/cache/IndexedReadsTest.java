package io.cairn.spark.cache;

import static io.cairn.spark.cache.CacheFixture.LISTS;
import static io.cairn.spark.cache.CacheFixture.ORDERED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.junit.jupiter.api.Test;

/** Reads of the rows that a scan of an index names, of a state larger than the cache. */
class IndexedReadsTest {
  private static final int ROWS = 8_000;

  private final CacheFixture f = new CacheFixture(1 << 20);

  /** Rows of one time do not lie together. */
  private static String name(int number) {
    return String.format("row%06d", number * 7_919L % ROWS);
  }

  private static String time(int number) {
    return String.format("%08d", number / 10);
  }

  private void commitRows() {
    f.begin();
    for (int i = 0; i < ROWS; i++) {
      f.put(ORDERED, time(i) + name(i), "");
      f.append(name(i) + time(i), "v" + i);
    }
    beginElsewhere();
  }

  /** As the operator that scans the index tells. */
  private void beginElsewhere() {
    f.commitAndBeginElsewhere();
    f.session.followIndex(ORDERED, LISTS, IndexedReadsTest::named);
  }

  private static byte[] named(byte[] key) {
    return key.length < 8
        ? null
        : MapEngine.join(Arrays.copyOfRange(key, 8, key.length), Arrays.copyOf(key, 8));
  }

  /** The key of the list that the row of a scan names. */
  private static String named(RowCursor scan) {
    return new String(named(scan.key.toArray()), StandardCharsets.UTF_8);
  }

  /** One message per row: an outer join that removes old rows took twice as long. */
  @Test
  void readsOfTheRowsThatAScanNamesNeedFewRequests() {
    commitRows();
    RowCursor scan = f.session.range(ORDERED, null, null);

    assertEquals(ROWS, readAndRemoveAll(scan));

    // This engine's pages have 20 rows on average; each page may need two requests.
    assertTrue(f.engine.getRequests < ROWS / 8, "gets: " + f.engine.getRequests);
    assertEquals(0, f.session.prefetcher.hits(), "no operator has announced them");
    assertEquals(0, f.session.prefetcher.misses());
  }

  /** As Spark's join does: it takes the next row of the index before it reads what one names. */
  private int readAndRemoveAll(RowCursor scan) {
    int read = 0;
    String key = scan.next() ? named(scan) : null;
    while (key != null) {
      String next = scan.next() ? named(scan) : null;
      assertTrue(f.get(LISTS, key).startsWith("v"), key);
      f.remove(LISTS, key);
      key = next;
      read++;
    }
    return read;
  }

  @Test
  void rowsThatNobodyReadsAreNotRequested() {
    commitRows();
    RowCursor scan = f.session.range(ORDERED, null, null);
    for (int i = 0; scan.next(); i++) {
      if (i % 500 == 0) {
        assertEquals("v", f.get(LISTS, named(scan)).substring(0, 1));
      }
    }

    assertTrue(f.engine.keysRequested < ROWS / 20, "keys: " + f.engine.keysRequested);
  }

  @Test
  void readsOfOtherKeysRequestNothingElse() {
    commitRows();
    RowCursor scan = f.session.range(ORDERED, null, null);
    int count = 0;
    while (scan.next() && count < 300) {
      assertNull(f.get(LISTS, CacheFixture.text(scan.key)));
      count++;
    }

    assertEquals(count, f.engine.keysRequested);
  }

  /** What was requested has the committed value. */
  @Test
  void aWriteIsReadBackThoughItsKeyWasRequestedBeforeItWasSpilled() {
    commitRows();
    RowCursor scan = f.session.range(ORDERED, null, null);
    for (int i = 0; i < 20; i++) {
      assertTrue(scan.next());
      f.get(LISTS, named(scan));
    }
    for (int i = 20; i < 60; i++) {
      f.append(name(i) + time(i), "+");
    }
    f.remove(LISTS, name(60) + time(60));
    f.fillUntilSpilled();

    int removed = 0;
    for (int i = 20; i < 100; i++) {
      assertTrue(scan.next());
      String value = f.get(LISTS, named(scan));
      removed += value == null ? 1 : 0;
      boolean isAppended = value != null && value.endsWith("+");
      int number = value == null ? 60 : Integer.parseInt(value.replaceAll("[v+]", ""));
      assertEquals(number >= 20 && number < 60, isAppended, value);
    }
    assertEquals(1, removed);
  }

  /** The keys of an ordered family may be shorter than a time. */
  @Test
  void anIndexMayHaveShortKeys() {
    commitRows();
    f.put(ORDERED, "0", "");
    f.put(ORDERED, "00000000zzzzzzzzz", "");
    f.put(ORDERED, "00000001", "");
    beginElsewhere();

    RowCursor scan = f.session.range(ORDERED, null, null);
    int found = 0;
    while (scan.next()) {
      if (scan.key.length > 8) {
        found += f.get(LISTS, named(scan)) == null ? 0 : 1;
      }
    }

    assertEquals(ROWS, found);
  }
}
