package io.cairn.spark.cache;

import static io.cairn.spark.cache.CacheFixture.LISTS;
import static io.cairn.spark.cache.CacheFixture.ORDERED;
import static io.cairn.spark.cache.CacheFixture.PLAIN;
import static io.cairn.spark.cache.CacheFixture.bytes;
import static io.cairn.spark.cache.CacheFixture.rows;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.MemoryPool;
import io.cairn.spark.protocol.WriteBlock;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A store that lost a part of its cache, and reads it again. */
class RefillTest {
  private static final int KEYS = 300;
  private static final int ORDERED_LISTS = 3;

  private final CacheFixture f = new CacheFixture(256 << 10);

  private void commitKeys() {
    f.begin();
    for (int i = 0; i < KEYS; i++) {
      f.put(PLAIN, key(i), "plain" + i);
      f.put(ORDERED, key(i), "ordered" + i);
      f.append(key(i), "a");
    }
    f.commit();
    assertTrue(f.cache.stats().isComplete());
  }

  private static String key(int i) {
    return String.format("key%05d", i);
  }

  /** One batch that is larger than the cache; its rows are removed by the next batch. */
  private void commitOversizedBatch() {
    f.begin();
    int filled = 0;
    while (!f.session.hasSpilled()) {
      f.put(PLAIN, "fill" + filled++, "x".repeat(100));
    }
    f.commit();
    f.begin();
    for (int i = 0; i < filled; i++) {
      f.remove(PLAIN, "fill" + i);
    }
    f.commit();
    assertFalse(f.cache.stats().isComplete());
  }

  private void refill() {
    f.begin();
    f.refillUntil(() -> false);
    f.session.abort();
  }

  private void refillPages(int pages) {
    int[] left = {pages};
    f.begin();
    f.refillUntil(() -> left[0]-- == 0);
    f.session.abort();
  }

  private static boolean isDue(CacheFixture of, long rows, long bytesPerRow) {
    of.cache.expectRows(rows, bytesPerRow);
    return of.cache.isRefillDue();
  }

  private long requests() {
    return f.engine.getRequests + f.engine.scanRequests;
  }

  /** Otherwise one large batch makes a store slow until the next load. */
  @Test
  void aStoreThatFitsAgainAnswersEverythingAfterARefill() {
    commitKeys();
    commitOversizedBatch();
    assertTrue(isDue(f, 3 * KEYS, 100));

    f.begin();
    f.session.refillOnDemand();
    long before = requests();
    assertEquals("plain7", f.get(PLAIN, key(7)));
    assertNull(f.get(PLAIN, "fill0"));
    assertNull(f.get(ORDERED, "absent"));
    assertEquals(KEYS, rows(f.session.range(ORDERED, null, null)).size());
    assertEquals(100, rows(f.session.range(ORDERED, bytes(key(50)), bytes(key(150)))).size());
    assertEquals(KEYS, rows(f.session.scan(LISTS)).size());
    f.append(key(3), "b");
    f.commit();
    f.begin();
    assertEquals("ab", f.get(LISTS, key(3)));

    assertEquals(before, requests());
    assertTrue(f.cache.stats().isComplete());
    assertEquals(1, f.cache.stats().refills());
    assertFalse(isDue(f, 3 * KEYS, 100));
  }

  /** A task that wants the store must not lose what was read, and its writes must not be lost. */
  @Test
  void aRefillContinuesAfterCommitsInBetween() {
    commitKeys();
    commitOversizedBatch();
    TreeMap<String, String> expected = new TreeMap<>();
    for (int i = 0; i < KEYS; i++) {
      expected.put(key(i), "ordered" + i);
    }
    long pages = 0;
    for (int batch = 0; !f.cache.stats().isComplete(); batch++) {
      assertTrue(batch < 200, "the refill starts again and again");
      refillPages(1);
      pages++;
      f.begin();
      for (int i = batch; i < KEYS; i += 50) {
        f.remove(ORDERED, key(i));
        expected.remove(key(i));
        String other = key(i) + "." + batch;
        f.put(ORDERED, other, "new" + batch);
        expected.put(other, "new" + batch);
        f.append(other, "z");
        f.put(ORDERED, key(i + 7), "changed" + batch);
        expected.put(key(i + 7), "changed" + batch);
      }
      f.commit();
    }
    assertTrue(pages > 10, pages + " pages");

    f.begin();
    long before = requests();
    assertEquals(expected, rows(f.session.range(ORDERED, null, null)));
    assertEquals(expected, rows(f.session.scan(ORDERED)));
    assertEquals("z", f.get(LISTS, key(0) + ".0"));
    assertNull(f.get(ORDERED, key(0)));
    assertEquals(before, requests());
    for (Map.Entry<String, String> row : expected.entrySet()) {
      assertEquals(
          row.getValue(),
          new String(f.engine.state(f.engine.newest(), ORDERED).get(bytes(row.getKey()))));
    }
  }

  /** An eviction between two parts of a refill drops rows that the refill believes to be cached. */
  @Test
  void anEvictionHalfWayEndsTheRefill() {
    commitKeys();
    commitOversizedBatch();
    refillPages(2);
    assertTrue(f.cache.evictIfIdle(1));

    assertFalse(isDue(f, 3 * KEYS, 100), "the store waits for some sessions");
    refill();

    assertTrue(f.cache.stats().isComplete());
    f.begin();
    assertEquals(KEYS, rows(f.session.range(ORDERED, null, null)).size());
    assertEquals(KEYS, rows(f.session.scan(PLAIN)).size());
  }

  /** A worker that is lost must cost no row, and not what was read before. */
  @Test
  void aRefillThatFailsContinuesLater() {
    commitKeys();
    commitOversizedBatch();
    f.engine.mostScans = f.engine.scanRequests + 5;
    f.begin();
    assertThrows(IllegalStateException.class, () -> f.refillUntil(() -> false));
    f.session.abort();
    f.engine.mostScans = Long.MAX_VALUE;
    f.begin();
    f.put(ORDERED, key(0), "changed");
    f.remove(ORDERED, key(1));
    f.put(ORDERED, key(2) + ".", "new");
    f.commit();
    long before = f.engine.rowsScanned;
    refill();

    assertTrue(f.cache.stats().isComplete());
    assertTrue(f.engine.rowsScanned - before < 3 * KEYS - 3, "it starts again");
    f.begin();
    long requests = requests();
    assertEquals("changed", f.get(ORDERED, key(0)));
    assertNull(f.get(ORDERED, key(1)));
    assertEquals(KEYS, rows(f.session.range(ORDERED, null, null)).size());
    assertEquals(KEYS, rows(f.session.scan(PLAIN)).size());
    assertEquals(requests, requests());
  }

  /** The engine may still have a key that the cache has as deleted. */
  @Test
  void aRefillThatFailsAtOnceForgetsNoDelete() {
    commitKeys();
    for (int i = 0; i < 30; i++) {
      f.forget();
      f.begin();
      f.remove(PLAIN, key(i));
      f.commit();
      f.engine.mostScans = f.engine.scanRequests;
      f.begin();
      assertThrows(IllegalStateException.class, () -> f.refillUntil(() -> false));
      f.engine.mostScans = Long.MAX_VALUE;
      assertNull(f.get(PLAIN, key(i)));
      f.session.abort();
    }
  }

  /** A key that was absent when the refill began, and was put when it had passed. */
  @Test
  void aKeyPutBehindARefillIsInItsOrder() {
    commitKeys();
    f.forget();
    f.begin();
    assertNull(f.get(ORDERED, "a"));
    f.commit();
    while (!f.isComplete(PLAIN)) {
      refillPages(1);
    }
    refillPages(2);
    f.begin();
    // Short enough for the entry of the absent key.
    f.put(ORDERED, "a", "n");
    f.commit();
    refill();

    f.begin();
    long before = requests();
    assertEquals(KEYS + 1, rows(f.session.range(ORDERED, null, null)).size());
    assertEquals("n", f.get(ORDERED, "a"));
    assertEquals(before, requests());
  }

  /** A key that was cached before the refill, removed before its page, and put after it. */
  @ParameterizedTest
  @ValueSource(ints = {ORDERED, ORDERED_LISTS})
  void aKeyRemovedAndPutDuringARefillIsInItsOrder(int family) {
    f.cache.defineFamily(ORDERED_LISTS, true, true);
    f.begin();
    for (int i = 0; i < KEYS; i++) {
      f.put(family, key(i), "value" + i);
    }
    f.commit();
    f.forget();
    f.cache.defineFamily(ORDERED_LISTS, true, true);
    String key = key(KEYS / 2);
    f.begin();
    assertEquals("value" + KEYS / 2, f.get(family, key));
    f.commit();
    refillUntilBehind(family, key(0));
    f.begin();
    f.remove(family, key);
    f.commit();
    refillUntilBehind(family, key);
    f.begin();
    // Short enough for the entry of the removed key.
    if (family == ORDERED) {
      f.put(family, key, "n");
    } else {
      f.session.append(family, CacheFixture.span(key), CacheFixture.span("n"));
    }
    f.commit();
    refill();

    f.begin();
    long before = requests();
    TreeMap<String, String> found = rows(f.session.range(family, null, null));
    assertEquals(KEYS, found.size());
    assertEquals("n", found.get(key));
    assertEquals(before, requests());
  }

  /** Otherwise the next refill reads the same page, and fails again, and so on for ever. */
  @Test
  void aRefillThatMeetsASpilledRowBeginsAgain() {
    commitKeys();
    f.forget();
    f.begin();
    // The rows of another session.
    WriteBlock block = new WriteBlock();
    block.add(
        WriteBlock.PUT,
        WriteBlock.PRESENT,
        PLAIN,
        CacheFixture.span(key(KEYS / 2)),
        CacheFixture.span("spilled"));
    f.engine.write(block, true);
    assertThrows(IllegalStateException.class, () -> f.refillUntil(() -> false));
    assertNull(f.cache.committed.families.get(PLAIN).refilledThrough());
    f.session.abort();

    assertFalse(isDue(f, 3 * KEYS, 100), "the store waits for some sessions");
    refill();

    assertTrue(f.cache.stats().isComplete());
    f.begin();
    assertEquals("plain" + KEYS / 2, f.get(PLAIN, key(KEYS / 2)));
    assertEquals(KEYS, rows(f.session.scan(PLAIN)).size());
  }

  /** The row would be absent for all reads, and no later refill would succeed. */
  @Test
  void aRowThatTheCacheHasAsAbsentIsReadFromTheEngine() {
    commitKeys();
    f.forget();
    String key = key(KEYS / 2);
    refillUntilBehind(PLAIN, key(0));
    addAbsent(PLAIN, key);

    f.begin();
    assertThrows(IllegalStateException.class, () -> f.refillUntil(() -> false));
    assertEquals("plain" + KEYS / 2, f.get(PLAIN, key));
    f.session.abort();
    refill();

    assertTrue(f.cache.stats().isComplete());
    f.begin();
    long before = requests();
    assertEquals(KEYS, rows(f.session.scan(PLAIN)).size());
    assertEquals("plain" + KEYS / 2, f.get(PLAIN, key));
    assertEquals(before, requests());
  }

  /** Adds what only an error could add: the absence of a committed key. */
  private void addAbsent(int family, String key) {
    CachedFamily to = f.cache.committed.families.get(family);
    ByteSpan span = CacheFixture.span(key);
    assertEquals(0, to.find(Bytes.hash(span), span));
    assertTrue(f.cache.committed.account.tryReserve(to.bytesToInsert(span.length, 1)));
    to.insert(Bytes.hash(span), span, null);
  }

  private void refillUntilBehind(int family, String key) {
    f.begin();
    f.refillUntil(() -> isRefilledThrough(family, key));
    f.session.abort();
    assertTrue(isRefilledThrough(family, key));
    assertFalse(f.isComplete(family));
  }

  private boolean isRefilledThrough(int family, String key) {
    byte[] through = f.cache.committed.families.get(family).refilledThrough();
    return through != null && Arrays.compareUnsigned(through, bytes(key)) >= 0;
  }

  @Test
  void aRefillThatDoesNotFitKeepsTheRowsRight() {
    CacheFixture small = new CacheFixture(64 << 10);
    small.begin();
    for (int i = 0; i < 2_000; i++) {
      small.put(ORDERED, key(i), "x".repeat(50));
    }
    small.commit();
    assertFalse(isDue(small, 2_000, 100));

    small.begin();
    small.refillUntil(() -> false);

    assertFalse(small.isComplete(ORDERED));
    assertTrue(small.isComplete(PLAIN));
    assertEquals(2_000, rows(small.session.range(ORDERED, null, null)).size());
    assertEquals(0, small.cache.stats().refills());
    small.session.abort();
    assertFalse(isDue(small, 0, 100), "it was in vain");
  }

  /** Begins a session on an empty cache that refills on demand; no number of rows is few. */
  private void beginOnDemand(CacheFixture on, long rows) {
    on.forget();
    on.cache.committed.refills.policy.fewRows = 0;
    on.begin();
    on.cache.expectRows(rows, 100);
    on.session.refillOnDemand();
  }

  /** A load would be as slow as the read of the whole state. */
  @Test
  void aSessionThatReadsLittleReadsNoPage() {
    commitKeys();
    beginOnDemand(f, 3 * KEYS);
    assertEquals("plain7", f.get(PLAIN, key(7)));
    assertNull(f.get(ORDERED, "absent"));
    f.put(ORDERED, key(8), "changed");
    f.commit();

    assertEquals(0, f.engine.scanRequests);
    assertFalse(f.cache.stats().isComplete());
  }

  /** Each key would be a request, in each batch. */
  @Test
  void aSessionThatReadsMuchRefillsBetweenItsWrites() {
    commitKeys();
    beginOnDemand(f, 3 * KEYS);
    f.put(PLAIN, key(1), "changed");
    f.remove(ORDERED, key(2));
    f.append(key(3), "b");
    f.append("new", "n");
    f.remove(PLAIN, key(5));
    // 900 rows, an eighth of which is paid by 7 requests.
    for (int i = 0; i < 7; i++) {
      assertEquals("plain" + (10 + i), f.get(PLAIN, key(10 + i)));
    }
    assertFalse(f.isComplete(PLAIN));
    assertEquals("plain50", f.get(PLAIN, key(50)));
    assertTrue(f.isComplete(PLAIN) && f.isComplete(ORDERED) && f.isComplete(LISTS));

    long before = requests();
    assertEquals("changed", f.get(PLAIN, key(1)));
    assertNull(f.get(ORDERED, key(2)));
    assertEquals("ab", f.get(LISTS, key(3)));
    assertEquals("n", f.get(LISTS, "new"));
    assertEquals(KEYS - 1, rows(f.session.range(ORDERED, null, null)).size());
    assertEquals(KEYS + 1, rows(f.session.scan(LISTS)).size());
    f.commit();
    f.begin();
    assertEquals("changed", f.get(PLAIN, key(1)));
    assertNull(f.get(PLAIN, key(5)));
    assertNull(f.get(ORDERED, key(2)));
    assertEquals("ab", f.get(LISTS, key(3)));
    assertEquals(KEYS - 1, rows(f.session.scan(PLAIN)).size());
    assertEquals(before, requests());
    assertEquals(0, f.cache.stats().refills(), "the cache of a load was never complete before");
  }

  /** A scan reads all rows anyway: the next one need not. */
  @Test
  void aScanOfAllRowsRefillsItsFamily() {
    commitKeys();
    beginOnDemand(f, 3 * KEYS);
    f.put(PLAIN, "new", "v");
    RowCursor early = f.session.scan(PLAIN);
    assertEquals(0, requests());
    assertEquals(KEYS + 1, rows(early).size());
    assertTrue(f.isComplete(PLAIN));
    assertFalse(f.isComplete(ORDERED));

    long before = requests();
    assertEquals(KEYS + 1, rows(f.session.scan(PLAIN)).size());
    assertEquals(before, requests());
  }

  @Test
  void manyScansOfRangesBeginARefill() {
    commitKeys();
    beginOnDemand(f, 3 * KEYS);
    for (int i = 0; i < 20; i++) {
      assertEquals(2, rows(f.session.range(ORDERED, bytes(key(i)), bytes(key(i + 2)))).size());
    }
    assertTrue(f.isComplete(ORDERED));
  }

  /** The page of before the refill is far behind then, and has rows that are removed since. */
  @Test
  void aScanGoesOnAfterARefillAndAnEviction() {
    int rows = 11_000;
    CacheFixture large = new CacheFixture(2 << 20);
    large.begin();
    for (int i = 0; i < rows; i++) {
      large.put(ORDERED, key(i), "x".repeat(60));
    }
    for (int i = 0; i < 800; i++) {
      large.put(PLAIN, "plain" + i, "x");
    }
    large.commit();
    beginOnDemand(large, rows + 800);
    List<String> found = new ArrayList<>();
    RowCursor scan = large.session.range(ORDERED, null, null);
    takeAndRemove(large, scan, 3, found);
    assertFalse(large.isComplete(ORDERED));
    for (int i = 0; i < 800 && !large.isComplete(ORDERED); i++) {
      large.get(PLAIN, "plain" + i);
    }
    assertTrue(large.isComplete(ORDERED));
    takeAndRemove(large, scan, 1000, found);
    for (int i = 0; i < rows && large.isComplete(ORDERED); i++) {
      large.put(PLAIN, key(i), "x".repeat(100));
    }
    assertFalse(large.isComplete(ORDERED) || large.session.hasSpilled());
    takeAndRemove(large, scan, rows, found);

    assertEquals(IntStream.range(0, rows).mapToObj(RefillTest::key).toList(), found);
    assertFalse(large.session.range(ORDERED, null, null).next());
  }

  private static void takeAndRemove(
      CacheFixture from, RowCursor scan, int count, List<String> found) {
    for (int i = 0; i < count && scan.next(); i++) {
      found.add(CacheFixture.text(scan.key));
      from.remove(ORDERED, found.get(found.size() - 1));
    }
  }

  /** The pages of the engine have what was spilled, which an abort takes back. */
  @Test
  void aSessionThatHasSpilledDoesNotRefill() {
    commitKeys();
    beginOnDemand(f, 3 * KEYS);
    f.fillUntilSpilled();
    for (int i = 0; i < 100; i++) {
      assertEquals("plain" + i, f.get(PLAIN, key(i)));
    }
    rows(f.session.scan(PLAIN));
    assertFalse(f.isComplete(PLAIN) || f.isComplete(ORDERED));
    f.session.abort();
    f.begin();
    assertEquals(KEYS, rows(f.session.scan(PLAIN)).size());
  }

  /** A reply that comes after the refill would add its absent keys as rows. */
  @Test
  void aPrefetchThatIsFinishedAfterARefillAddsNothing() {
    commitKeys();
    beginOnDemand(f, 3 * KEYS);
    byte[][] keys = {bytes("absent"), bytes(key(7)), bytes("zero")};
    Prefetcher.Request request = f.session.prefetcher.start(PLAIN, keys, keys.length);
    f.refillUntil(() -> false);
    assertTrue(f.isComplete(PLAIN));
    request.finish();

    assertEquals(KEYS, f.entries(PLAIN));
    long before = requests();
    assertNull(f.get(PLAIN, "absent"));
    assertEquals("plain7", f.get(PLAIN, key(7)));
    assertEquals(KEYS, rows(f.session.scan(PLAIN)).size());
    assertNull(f.session.prefetcher.start(ORDERED, new byte[][] {bytes("absent")}, 1));
    assertEquals(before, requests());
  }

  /** A cancelled task would hold its slot until the whole state is read. */
  @Test
  void aRefillStopsWhenItsTaskIsInterrupted() {
    commitKeys();
    beginOnDemand(f, 3 * KEYS);
    Thread.currentThread().interrupt();
    assertEquals(KEYS, rows(f.session.scan(PLAIN)).size());
    assertTrue(Thread.interrupted());
    assertFalse(f.isComplete(PLAIN));
  }

  /** Another session, such as the change reader's, must not replace cached rows. */
  @Test
  void aSessionThatMayNotRefillReadsThroughTheEngine() {
    commitKeys();
    f.forget();
    f.cache.committed.refills.policy.fewRows = 0;
    f.cache.expectRows(3 * KEYS, 100);
    f.begin();
    for (int i = 0; i < 100; i++) {
      f.get(PLAIN, key(i));
    }
    assertEquals(KEYS, rows(f.session.scan(PLAIN)).size());
    assertFalse(f.isComplete(PLAIN));
  }

  /** The memory of a store that went idle is there for the store that is in use. */
  @Test
  void aRefillTakesWhatIdleStoresHaveAboveTheirShare() {
    MemoryPool pool = new MemoryPool(1 << 20);
    CacheFixture idle = new CacheFixture(pool);
    idle.begin();
    for (int i = 0; i < 6_000; i++) {
      idle.put(PLAIN, key(i), "x".repeat(80));
    }
    idle.commit();
    CacheFixture busy = new CacheFixture(pool);
    busy.begin();
    for (int i = 0; i < 3_000; i++) {
      busy.put(PLAIN, key(i), "y".repeat(80));
    }
    busy.commit();
    busy.forget();
    for (int batch = 0; batch < 40; batch++) {
      busy.begin();
      for (int i = 0; i < 100; i++) {
        busy.get(PLAIN, key(i));
      }
      busy.session.abort();
    }
    assertTrue(pool.accountedBytes() > pool.limitBytes() / 2);
    assertTrue(isDue(busy, 3_000, 100));

    busy.begin();
    busy.refillUntil(() -> false);

    assertTrue(busy.isComplete(PLAIN));
    assertTrue(pool.peakBytes() <= pool.limitBytes() + 4096);
    idle.begin();
    assertEquals(6_000, rows(idle.session.scan(PLAIN)).size());
  }

  /** After a spill each read of an absent key was a request, again and again. */
  @Test
  void absentKeysAreRememberedAfterASpill() {
    commitKeys();
    f.begin();
    f.fillUntilSpilled();
    f.fillUntilSpilled();
    for (int family : new int[] {PLAIN, ORDERED, LISTS}) {
      assertNull(f.get(family, "absent"));
    }
    assertNull(f.get(PLAIN, "written later"));
    long before = f.engine.getRequests;
    assertNull(f.get(PLAIN, "absent"));
    assertEquals(before, f.engine.getRequests);

    f.put(PLAIN, "written later", "v");
    f.fillUntilSpilled();
    assertEquals("v", f.get(PLAIN, "written later"));
    f.commit();
    f.begin();
    assertEquals("v", f.get(PLAIN, "written later"));
    assertNull(f.get(PLAIN, "absent"));
  }

  /** An absent key in a complete family would be a row of its scans. */
  @Test
  void absentKeysAreDroppedWhenTheSpilledSessionAborts() {
    CacheFixture large = new CacheFixture(1 << 20);
    large.begin();
    for (int i = 0; i < KEYS; i++) {
      large.put(ORDERED, key(i), "v");
    }
    large.commit();
    large.begin();
    large.put(ORDERED, "spilled", "v");
    large.fillUntilSpilled();
    assertNull(large.get(ORDERED, "absent"));
    large.session.abort();

    assertTrue(large.isComplete(ORDERED));
    large.begin();
    long before = large.engine.getRequests + large.engine.scanRequests;
    assertEquals(KEYS, rows(large.session.range(ORDERED, null, null)).size());
    assertEquals(KEYS, rows(large.session.scan(ORDERED)).size());
    assertNull(large.get(ORDERED, "absent"));
    assertEquals(before, large.engine.getRequests + large.engine.scanRequests);
    assertEquals(KEYS, large.entries(ORDERED));
  }
}
