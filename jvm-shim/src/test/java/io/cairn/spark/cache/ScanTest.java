package io.cairn.spark.cache;

import static io.cairn.spark.cache.CacheFixture.LISTS;
import static io.cairn.spark.cache.CacheFixture.ORDERED;
import static io.cairn.spark.cache.CacheFixture.PLAIN;
import static io.cairn.spark.cache.CacheFixture.rows;
import static io.cairn.spark.cache.CacheFixture.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** A scan returns the rows that existed when it was opened, whatever is written later. */
class ScanTest {
  private static final int ROWS = 40;

  /** Opens the scans of one kind over the same rows. */
  private enum Kind {
    PLAIN_ROWS(PLAIN),
    ROWS_IN_ORDER(ORDERED),
    ROWS_OF_AN_ORDERED_FAMILY(ORDERED),
    LISTS_OF_VALUES(LISTS);

    final int family;

    Kind(int family) {
      this.family = family;
    }

    RowCursor open(CacheFixture f) {
      return this == ROWS_IN_ORDER ? f.session.range(family, null, null) : f.session.scan(family);
    }
  }

  /** A family of one kind, its rows, and the writes of its session. */
  private static final class Rows {
    final CacheFixture f;
    final Kind kind;
    final TreeMap<String, String> now = new TreeMap<>();

    Rows(Kind kind, long poolBytes, boolean isCached) {
      this.kind = kind;
      f = new CacheFixture(poolBytes);
      f.begin();
      for (int i = 0; i < ROWS; i++) {
        put(i, "committed");
      }
      f.commit();
      if (!isCached) {
        f.forget();
      }
      f.begin();
    }

    void put(int i, String value) {
      f.put(kind.family, key(i), value);
      now.put(key(i), value);
    }

    /** Appends, or puts the whole value where there are no lists. */
    void append(int i, String value) {
      String before = now.getOrDefault(key(i), "");
      if (kind.family == LISTS) {
        f.append(key(i), value);
        now.put(key(i), before + value);
      } else {
        put(i, before + value);
      }
    }

    void remove(int i) {
      f.remove(kind.family, key(i));
      now.remove(key(i));
    }

    /** Writes old, new and removed keys of each kind, among them those of the last round. */
    void change(String value) {
      for (int i = 0; i < ROWS + 10; i++) {
        switch (i % 5) {
          case 0 -> put(i, value + i);
          case 1 -> append(i, value + i);
          case 2 -> remove(i);
          case 3 -> {
            if (value.hashCode() % 2 == 0) {
              append(i, value);
            }
          }
          default -> {}
        }
      }
    }

    /** A scan, and the rows that it must return. */
    Map.Entry<RowCursor, TreeMap<String, String>> open() {
      return Map.entry(kind.open(f), new TreeMap<>(now));
    }

    void close() {
      f.session.abort();
      f.cache.close();
      assertEquals(0, f.cache.accountedBytes());
    }
  }

  private static String key(int i) {
    return String.format("key%04d", i);
  }

  @Test
  void noScanFindsALaterWrite() {
    for (Kind kind : Kind.values()) {
      for (boolean isCached : new boolean[] {false, true}) {
        Rows rows = new Rows(kind, 1 << 20, isCached);
        List<Map.Entry<RowCursor, TreeMap<String, String>>> scans = new ArrayList<>();
        for (String value : List.of("first", "second", "third", "4")) {
          scans.add(rows.open());
          scans.add(rows.open());
          rows.change(value);
        }
        scans.forEach(scan -> assertEquals(scan.getValue(), rows(scan.getKey()), named(kind)));
        assertEquals(rows.now, rows(kind.open(rows.f)), named(kind));
        assertFalse(rows.f.session.hasSpilled());
        rows.close();
      }
    }
  }

  private static String named(Kind kind) {
    return kind.name();
  }

  /** After a spill the engine answers with the newer rows. */
  @Test
  void spillsHideNoRowFromAnOpenScan() {
    for (Kind kind : Kind.values()) {
      for (boolean isCached : new boolean[] {false, true}) {
        for (int read : new int[] {0, 7}) {
          Rows rows = new Rows(kind, 64 << 10, isCached);
          rows.change("before");
          Map.Entry<RowCursor, TreeMap<String, String>> first = rows.open();
          TreeMap<String, String> seen = new TreeMap<>();
          for (int i = 0; i < read; i++) {
            assertTrue(first.getKey().next());
            seen.put(text(first.getKey().key), text(first.getKey().value));
          }
          rows.change("after");
          spill(rows);
          Map.Entry<RowCursor, TreeMap<String, String>> second = rows.open();
          rows.change("later");
          spill(rows);
          rows.change("last");

          seen.putAll(rows(first.getKey()));
          assertEquals(first.getValue(), seen, named(kind));
          assertEquals(second.getValue(), rows(second.getKey()), named(kind));
          assertEquals(rows.now, rows(kind.open(rows.f)), named(kind));
          rows.close();
        }
      }
    }
  }

  private static void spill(Rows rows) {
    int family = rows.kind.family == PLAIN ? ORDERED : PLAIN;
    long before = rows.f.session.spillCount();
    for (int i = 0; rows.f.session.spillCount() == before; i++) {
      rows.f.put(family, "fill" + i, "x".repeat(100));
    }
  }

  /** Spark removes old rows behind its scan: they are passed, and must cost nothing more. */
  @Test
  void removalsBehindAScanRequestNothingWhenTheyAreSpilled() {
    for (int family : new int[] {PLAIN, ORDERED}) {
      CacheFixture f = new CacheFixture(32 << 10);
      f.begin();
      int count = 3_000;
      for (int i = 0; i < count; i++) {
        f.put(family, key(i), "committed");
      }
      f.commitAndBeginElsewhere();
      RowCursor scan =
          family == ORDERED ? f.session.range(family, null, null) : f.session.scan(family);
      while (scan.next()) {
        f.session.remove(family, scan.key);
        count--;
      }

      assertEquals(0, count);
      assertTrue(f.session.spillCount() > 1, f.session.spillCount() + " spills");
      assertEquals(0, f.engine.getRequests);
    }
  }

  /** The scan could not return its rows any more; nobody would notice. */
  @Test
  void aSpillThatCannotKeepTheRowsOfAScanSendsNothing() {
    Rows rows = new Rows(Kind.PLAIN_ROWS, 64 << 10, false);
    Map.Entry<RowCursor, TreeMap<String, String>> scan = rows.open();
    rows.change("after");
    rows.f.engine.failsGets = true;

    assertThrows(IllegalStateException.class, () -> spill(rows), "worker lost");

    assertEquals(0, rows.f.engine.spillBlocks);
    rows.f.engine.failsGets = false;
    assertEquals(scan.getValue(), rows(scan.getKey()));
    rows.close();
  }

  /** A task closes its iterators at its end, when another thread may fold the writes. */
  @Test
  void aScanThatIsClosedAfterTheFoldChangesNoCount() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    f.put(PLAIN, "a", "1");
    f.commit();
    f.begin();
    RowCursor scan = f.session.scan(PLAIN);
    assertTrue(scan.next());
    f.put(PLAIN, "b", "2");
    f.commit();
    scan.close();

    assertEquals(0, f.cache.committed.families.get(PLAIN).openScans);
  }

  @Test
  void spillAndEvictionDuringAnOpenScan() {
    for (int family : new int[] {PLAIN, ORDERED}) {
      CacheFixture f = new CacheFixture(96 << 10);
      f.begin();
      TreeMap<String, String> expected = new TreeMap<>();
      for (int i = 0; i < 300; i++) {
        String key = String.format("key%04d", i);
        f.put(family, key, "committed");
        expected.put(key, "committed");
      }
      f.commit();
      assertTrue(f.isComplete(family));
      f.begin();
      for (int i = 0; i < 300; i += 3) {
        String key = String.format("key%04d", i);
        f.put(family, key, "written");
        expected.put(key, "written");
      }
      RowCursor cursor =
          family == ORDERED ? f.session.range(family, null, null) : f.session.scan(family);
      TreeMap<String, String> seen = new TreeMap<>();
      for (int i = 0; i < 50; i++) {
        assertTrue(cursor.next());
        seen.put(text(cursor.key), text(cursor.value));
      }
      int other = family == ORDERED ? PLAIN : ORDERED;
      for (int i = 0; i < 2_000; i++) {
        f.put(other, "other" + i, "x".repeat(200));
      }
      assertTrue(f.session.hasSpilled());
      TreeMap<String, String> rest = rows(cursor);
      assertTrue(rest.keySet().stream().noneMatch(seen::containsKey));
      seen.putAll(rest);
      assertEquals(expected, seen);
      f.session.abort();
      f.cache.close();
      assertEquals(0, f.cache.accountedBytes());
    }
  }

  @Test
  void aScanSendsNoRequestBeforeTheFirstNext() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    f.put(ORDERED, "k", "v");
    f.commitAndBeginElsewhere();
    RowCursor cursor = f.session.scan(ORDERED);
    RowCursor range = f.session.range(ORDERED, null, null);
    assertEquals(0, f.engine.scanRequests);
    assertTrue(cursor.next());
    assertTrue(range.next());
    assertEquals(2, f.engine.scanRequests);
  }

  @Test
  void aScanReadsManyRowsThatWereOverwritten() {
    for (Kind kind : Kind.values()) {
      CacheFixture f = new CacheFixture(64 << 20);
      f.begin();
      for (int i = 0; i < 3_000; i++) {
        f.put(kind.family, key(i), "before");
      }
      RowCursor scan = kind.open(f);
      for (int i = 0; i < 3_000; i++) {
        f.put(kind.family, key(i), "after");
        f.put(kind.family, "new" + i, "after");
      }

      TreeMap<String, String> rows = rows(scan);

      assertEquals(3_000, rows.size());
      assertEquals(Set.of("before"), Set.copyOf(rows.values()));
    }
  }

  /** User code may leave a scan at its first row, and write the rows of its range many times. */
  @Test
  void anAbandonedScanIsForgotten() throws InterruptedException {
    for (Kind kind : Kind.values()) {
      Rows rows = new Rows(kind, 256 << 20, true);
      rows.change("before");
      abandon(rows);

      long grown = Long.MAX_VALUE;
      for (int i = 0; i < 50 && grown > 0; i++) {
        System.gc();
        Thread.sleep(10);
        long before = rows.f.cache.accountedBytes();
        for (int j = 0; j < 10_000; j++) { // more than a slab
          kind.open(rows.f).close();
          rows.put(0, "after");
        }
        grown = rows.f.cache.accountedBytes() - before;
      }
      assertEquals(0, grown, "bytes for versions that no scan sees");
      assertFalse(rows.f.session.hasSpilled());
      rows.close();
    }
  }

  @Test
  void theWritesThatAnAbandonedScanHoldsAreFreed() throws InterruptedException {
    for (Kind kind : Kind.values()) {
      Rows rows = new Rows(kind, 64 << 10, true);
      rows.change("before");
      RowCursor[] scan = {rows.kind.open(rows.f)};
      assertTrue(scan[0].next());
      spill(rows);
      rows.f.session.exists(PLAIN, CacheFixture.span("absent")); // all writes are in the buffer now

      long kept = rows.f.cache.accountedBytes();
      scan[0] = null; // from now on: a collection before the measurement would free them
      for (int i = 0; i < 100 && rows.f.cache.accountedBytes() >= kept; i++) {
        System.gc();
        Thread.sleep(10);
        rows.f.session.scan(kind.family).close();
      }
      assertTrue(rows.f.cache.accountedBytes() < kept, "the spilled writes are still here");
      rows.close();
    }
  }

  /** Reads the first row. */
  private static void abandon(Rows rows) {
    assertTrue(rows.kind.open(rows.f).next());
  }
}
