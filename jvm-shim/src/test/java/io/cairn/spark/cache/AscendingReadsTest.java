package io.cairn.spark.cache;

import static io.cairn.spark.cache.CacheFixture.ORDERED;
import static io.cairn.spark.cache.CacheFixture.PLAIN;
import static io.cairn.spark.cache.CacheFixture.bytes;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.bytes.Bytes;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** Reads in the order of their keys, of a state that is larger than the cache. */
class AscendingReadsTest {
  private static final int ROWS = 20_000;

  private final CacheFixture f = new CacheFixture(1 << 20);

  private static String key(int number) {
    return String.format("k%06d", number);
  }

  private void commitRows() {
    f.begin();
    for (int i = 0; i < ROWS; i++) {
      f.put(PLAIN, key(2 * i), "v" + i);
    }
    f.commitAndBeginElsewhere();
  }

  /** One message per key: a join that removes old rows took five times as long. */
  @Test
  void readsInOrderNeedFewRequests() {
    commitRows();
    long before = f.engine.getRequests;

    for (int i = 0; i < ROWS; i++) {
      assertEquals("v" + i, f.get(PLAIN, key(2 * i)));
      assertNull(f.get(PLAIN, key(2 * i + 1)));
    }

    assertTrue(f.engine.getRequests - before < 20, "gets: " + (f.engine.getRequests - before));
    // This engine's pages have 20 rows on average.
    assertTrue(f.engine.scanRequests < ROWS / 10, "scans: " + f.engine.scanRequests);
  }

  /** A page of which one row is used costs more than its read. */
  @Test
  void readsOfFewOfTheRowsReadFewPages() {
    commitRows();
    int step = 50;

    for (int round = 0; round < 5; round++) {
      for (int i = 0; i < ROWS; i += step) {
        assertEquals("v" + i, f.get(PLAIN, key(2 * i)));
      }
    }

    int reads = 5 * ROWS / step;
    assertTrue(f.engine.rowsScanned < reads, f.engine.rowsScanned + " rows for " + reads);
  }

  @Test
  void readsWithoutOrderScanNothing() {
    commitRows();

    for (int i = 0; i < ROWS; i++) {
      int row = (int) (i * 7_919L % ROWS);
      assertEquals("v" + row, f.get(PLAIN, key(2 * row)));
    }

    assertEquals(0, f.engine.scanRequests);
  }

  /** What was read ahead has the committed value. */
  @Test
  void aSpilledWriteIsReadBackBetweenReadsInOrder() {
    commitRows();
    for (int i = 0; i < 200; i++) {
      f.get(PLAIN, key(2 * i));
    }
    f.put(PLAIN, key(402), "new");
    f.remove(PLAIN, key(404));
    f.put(PLAIN, key(405), "added");
    f.fillUntilSpilled();

    assertEquals("v200", f.get(PLAIN, key(400)));
    assertEquals("new", f.get(PLAIN, key(402)));
    assertNull(f.get(PLAIN, key(404)));
    assertEquals("added", f.get(PLAIN, key(405)));
    assertEquals("v203", f.get(PLAIN, key(406)));
  }

  /** A join that removes old rows spills all the time. */
  @Test
  void aSpillOfKeysThatWerePassedKeepsThePages() {
    commitRows();
    for (int i = 0; i < ROWS / 2; i++) {
      assertEquals("v" + i, f.get(PLAIN, key(2 * i)));
    }
    for (int i = 0; i < 500; i++) {
      f.remove(PLAIN, key(2 * i));
    }
    f.put(PLAIN, key(ROWS + 50), "ahead");
    f.remove(PLAIN, key(ROWS + 60));
    f.put(PLAIN, key(ROWS + 71), "between");
    long scans = f.engine.scanRequests;
    f.fillUntilSpilled();

    assertEquals("v" + ROWS / 2, f.get(PLAIN, key(ROWS)));
    assertEquals("ahead", f.get(PLAIN, key(ROWS + 50)));
    assertNull(f.get(PLAIN, key(ROWS + 60)));
    assertEquals("between", f.get(PLAIN, key(ROWS + 71)));
    assertTrue(f.engine.scanRequests <= scans + 20, "it begins with small pages again");
    long gets = f.engine.getRequests;
    for (int i = ROWS / 2 + 40; i < ROWS; i++) {
      assertEquals("v" + i, f.get(PLAIN, key(2 * i)));
    }
    assertTrue(f.engine.getRequests - gets < 50, "gets: " + (f.engine.getRequests - gets));
    assertNull(f.get(PLAIN, key(2)));
  }

  /** The last read was of a key that only the page requested ahead has. */
  @Test
  void aSpillBehindALastReadBeyondThePageIsKnown() {
    commitRows();
    int row = 0;
    while (row < 200 || f.engine.scanRequests < 12) {
      f.get(PLAIN, key(2 * row++));
    }
    for (int ahead = 1; ahead < 60; ahead++) {
      int written = 2 * (row + ahead);
      f.put(PLAIN, key(written + 2), "p");
      f.fillUntilSpilled();
      assertEquals("p", f.get(PLAIN, key(written + 2)));
      f.put(PLAIN, key(written), "q");
      f.fillUntilSpilled();
      assertEquals("v" + (row + ahead + 2), f.get(PLAIN, key(written + 4)));
      assertEquals("q", f.get(PLAIN, key(written)));
      row += ahead + 3;
      for (int i = 0; i < 40; i++) {
        assertEquals("v" + row, f.get(PLAIN, key(2 * row)));
        row++;
      }
    }
  }

  /** A write hides the row of its key in a page that comes later. */
  @Test
  void aScanOfAnIncompleteFamilyMergesWritesAndPages() {
    commitRows();
    Map<String, String> expected = new TreeMap<>();
    for (int i = 0; i < ROWS; i++) {
      expected.put(key(2 * i), "v" + i);
    }
    for (int i = 0; i < 500; i++) {
      String key = key((int) (i * 7_919L % (3 * ROWS)));
      f.put(PLAIN, key, "w");
      expected.put(key, "w");
    }
    f.remove(PLAIN, key(4));
    expected.remove(key(4));
    Map<String, String> found = new TreeMap<>();

    RowCursor cursor = f.session.scan(PLAIN);
    while (cursor.next()) {
      assertNull(found.put(CacheFixture.text(cursor.key), CacheFixture.text(cursor.value)));
    }

    assertEquals(expected, found);
  }

  /** The prefixes that come later were requested, and no write is within them. */
  @Test
  void requestedRangesOutliveASpillUnlessItWritesThem() {
    f.begin();
    for (int i = 0; i < ROWS; i++) {
      f.put(ORDERED, key(i), "v" + i);
    }
    f.commitAndBeginElsewhere();
    byte[][] prefixes = new byte[50][];
    for (int i = 0; i < prefixes.length; i++) {
      prefixes[i] = bytes(key(10 * i));
    }
    f.session.prefetcher.startPrefixes(ORDERED, prefixes, prefixes.length).finish();
    f.put(ORDERED, key(20), "new");
    f.fillUntilSpilled();
    long before = f.engine.scanRequests;

    for (int i = 0; i < prefixes.length; i++) {
      byte[] prefix = bytes(key(10 * i));
      var rows = CacheFixture.rows(f.session.range(ORDERED, prefix, Bytes.successor(prefix)));
      assertEquals(Map.of(key(10 * i), i == 2 ? "new" : "v" + 10 * i), rows);
    }

    assertEquals(1, f.engine.scanRequests - before, "the range with the write");
  }
}
