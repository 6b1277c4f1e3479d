package io.cairn.spark.tier;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

class StoreTierTest {
  private static final int PLAIN = 0;
  private static final int ORDERED = 1;
  private static final int LISTS = 2;

  /** A store, its engine and its open session. */
  private static final class Fixture {
    final MapEngine engine = new MapEngine(new Random(7));
    final StoreTier tier;
    TierSession session;

    Fixture(TierBudget budget) {
      tier = new StoreTier(budget);
      tier.reset(0, "v0", true);
      define();
    }

    Fixture(long budgetBytes) {
      this(new TierBudget(budgetBytes));
    }

    void define() {
      tier.defineFamily(PLAIN, false, false);
      tier.defineFamily(ORDERED, true, false);
      tier.defineFamily(LISTS, false, true);
    }

    TierSession begin() {
      engine.begin(tier.stampVersion());
      session = tier.begin(engine);
      return session;
    }

    void commit() {
      session.finishWrites();
      engine.commit();
      session.commit(engine.newest(), "v" + engine.newest());
    }

    /** As a provider on another executor: nothing in the base. */
    void forget() {
      tier.reset(engine.newest(), "v" + engine.newest(), false);
      define();
    }

    void put(int family, String key, String value) {
      byte[] k = bytes(key);
      byte[] v = bytes(value);
      session.put(family, k, Regions.ARRAY, k.length, v, Regions.ARRAY, v.length, false);
    }

    void append(String key, String value) {
      byte[] k = bytes(key);
      byte[] v = bytes(value);
      session.append(LISTS, k, Regions.ARRAY, k.length, v, Regions.ARRAY, v.length);
    }

    void remove(int family, String key) {
      byte[] k = bytes(key);
      session.remove(family, k, Regions.ARRAY, k.length);
    }

    String get(int family, String key) {
      byte[] k = bytes(key);
      ValueRef out = new ValueRef();
      return session.get(family, k, Regions.ARRAY, k.length, out)
          ? text(out.base, out.offset, out.length)
          : null;
    }

    /** Writes enough other keys that what was written before is with the engine. */
    void fillUntilSpilled() {
      int i = 0;
      long before = tier.spills;
      while (tier.spills == before) {
        put(PLAIN, "fill" + i++, "x".repeat(100));
      }
    }
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String text(Object base, long offset, int length) {
    return new String(Regions.copy(base, offset, length), StandardCharsets.UTF_8);
  }

  private static TreeMap<String, String> rows(TierCursor cursor) {
    TreeMap<String, String> rows = new TreeMap<>();
    while (cursor.next()) {
      String key = text(cursor.keyBase, cursor.keyOffset, cursor.keyLength);
      assertNull(
          rows.put(key, text(cursor.valueBase, cursor.valueOffset, cursor.valueLength)),
          "twice: " + key);
    }
    return rows;
  }

  @Test
  void abortAfterOverwritingAPinnedKey() {
    Fixture f = new Fixture(1 << 20);
    f.begin();
    f.put(PLAIN, "k", "one");
    f.commit();
    f.begin();
    assertTrue(f.engine.appliedThrough() < 1, "the engine has not applied version 1");
    f.put(PLAIN, "k", "two");
    assertEquals("two", f.get(PLAIN, "k"));
    f.session.abort();
    f.begin();
    assertEquals("one", f.get(PLAIN, "k"));
    assertEquals(0, f.engine.getRequests);
  }

  @Test
  void abortAfterASpillWasReadBack() {
    Fixture f = new Fixture(64 << 10);
    f.begin();
    f.put(PLAIN, "k", "one");
    f.append("list", "a");
    f.commit();
    f.begin();
    f.put(PLAIN, "k", "two");
    f.append("list", "b");
    f.remove(PLAIN, "absent");
    f.fillUntilSpilled();
    assertTrue(f.session.hasSpilled());
    assertEquals("two", f.get(PLAIN, "k"));
    assertEquals("ab", f.get(LISTS, "list"));
    f.session.abort();
    f.begin();
    assertEquals("one", f.get(PLAIN, "k"));
    assertEquals("a", f.get(LISTS, "list"));
    assertNull(f.get(PLAIN, "fill0"));
    assertFalse(f.session.hasSpilled());
  }

  @Test
  void spillAndEvictionDuringAnOpenScan() {
    for (int family : new int[] {PLAIN, ORDERED}) {
      Fixture f = new Fixture(96 << 10);
      f.begin();
      TreeMap<String, String> expected = new TreeMap<>();
      for (int i = 0; i < 300; i++) {
        String key = String.format("key%04d", i);
        f.put(family, key, "committed");
        expected.put(key, "committed");
      }
      f.commit();
      assertTrue(f.tier.isComplete(family));
      f.begin();
      for (int i = 0; i < 300; i += 3) {
        String key = String.format("key%04d", i);
        f.put(family, key, "written");
        expected.put(key, "written");
      }
      TierCursor cursor =
          family == ORDERED ? f.session.range(family, null, null) : f.session.scan(family);
      TreeMap<String, String> seen = new TreeMap<>();
      for (int i = 0; i < 50; i++) {
        assertTrue(cursor.next());
        seen.put(
            text(cursor.keyBase, cursor.keyOffset, cursor.keyLength),
            text(cursor.valueBase, cursor.valueOffset, cursor.valueLength));
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
      f.tier.close();
      assertEquals(0, f.tier.accountedBytes());
    }
  }

  @Test
  void anAppendToALongListCostsNoRead() {
    Fixture f = new Fixture(8 << 20);
    f.begin();
    for (int i = 0; i < 20_000; i++) {
      f.append("list", "0123456789");
    }
    f.commit();
    f.forget();
    for (int batch = 0; batch < 3; batch++) {
      f.begin();
      f.append("list", "tail" + batch);
      f.commit();
    }
    assertEquals(0, f.engine.getRequests + f.engine.scanRequests);
    f.begin();
    assertTrue(f.get(LISTS, "list").endsWith("9tail0tail1tail2"));
    assertEquals(1, f.engine.getRequests);
  }

  @Test
  void appendsCostTheSameHoweverLongTheListIs() {
    Fixture f = new Fixture(16 << 20);
    f.begin();
    int rows = 100_000;
    for (int i = 0; i < rows; i++) {
      f.append("list", "0123456789");
    }
    // Geometric growth leaves copies of at most a few times the list behind.
    assertTrue(f.tier.accountedBytes() < rows * 10L * 6, "accounted " + f.tier.accountedBytes());
    f.commit();
    for (int batch = 0; batch < 200; batch++) {
      f.begin();
      f.append("list", "0123456789");
      f.commit();
    }
    f.begin();
    assertEquals((rows + 200) * 10, f.get(LISTS, "list").length());
    assertTrue(f.tier.accountedBytes() < rows * 10L * 4, "accounted " + f.tier.accountedBytes());
    assertEquals(0, f.engine.getRequests);
  }

  @Test
  void aCompleteFamilyAsksTheEngineNothing() {
    Fixture f = new Fixture(8 << 20);
    for (int batch = 0; batch < 5; batch++) {
      f.begin();
      for (int i = 0; i < 1_000; i++) {
        assertNull(f.get(ORDERED, batch + "-" + i));
        f.put(ORDERED, batch + "-" + i, "v");
      }
      f.remove(ORDERED, batch + "-7");
      f.commit();
      assertEquals(999L * (batch + 1), f.tier.entries(ORDERED));
    }
    f.begin();
    assertEquals(999 * 5, rows(f.session.scan(ORDERED)).size());
    assertEquals(999, rows(f.session.range(ORDERED, bytes("3-"), bytes("3."))).size());
    assertNull(f.get(ORDERED, "2-7"));
    assertEquals(0, f.engine.getRequests + f.engine.scanRequests);
  }

  @Test
  void aLoadMakesAllFamiliesCompleteWhenTheyFit() {
    Fixture f = new Fixture(8 << 20);
    f.begin();
    for (int i = 0; i < 500; i++) {
      f.put(ORDERED, "k" + i, "v" + i);
      f.append("list" + i, "e");
    }
    f.commit();
    f.forget();
    assertFalse(f.tier.isComplete(ORDERED));
    f.begin();
    assertTrue(f.session.loadCommitted());
    long asked = f.engine.scanRequests;
    assertEquals(500, rows(f.session.range(ORDERED, null, null)).size());
    assertEquals("v7", f.get(ORDERED, "k7"));
    assertNull(f.get(PLAIN, "k7"));
    assertEquals(asked, f.engine.scanRequests + f.engine.getRequests);
  }

  @Test
  void aLoadThatDoesNotFitLeavesTheFamiliesIncomplete() {
    Fixture f = new Fixture(32 << 10);
    f.begin();
    for (int i = 0; i < 2_000; i++) {
      f.put(ORDERED, "k" + i, "x".repeat(50));
    }
    f.commit();
    f.forget();
    f.begin();
    assertFalse(f.session.loadCommitted());
    assertFalse(f.tier.isComplete(ORDERED));
    assertEquals(2_000, rows(f.session.range(ORDERED, null, null)).size());
    assertEquals(2_000, rows(f.session.scan(ORDERED)).size());
  }

  @Test
  void aScanAsksNothingBeforeTheFirstNext() {
    Fixture f = new Fixture(1 << 20);
    f.begin();
    f.put(ORDERED, "k", "v");
    f.commit();
    f.forget();
    f.begin();
    TierCursor walk = f.session.scan(ORDERED);
    TierCursor range = f.session.range(ORDERED, null, null);
    assertEquals(0, f.engine.scanRequests);
    assertTrue(walk.next());
    assertTrue(range.next());
    assertEquals(2, f.engine.scanRequests);
  }

  @Test
  void keysFetchedInBulkAreReadWithoutTheEngine() {
    Fixture f = new Fixture(1 << 20);
    f.begin();
    for (int i = 0; i < 100; i++) {
      f.put(PLAIN, "k" + i, "v" + i);
    }
    f.commit();
    f.forget();
    f.begin();
    byte[][] keys = new byte[200][];
    for (int i = 0; i < keys.length; i++) {
      keys[i] = bytes("k" + i);
    }
    f.session.getMany(PLAIN, keys, keys.length);
    assertEquals(1, f.engine.getRequests);
    for (int i = 0; i < keys.length; i++) {
      assertEquals(i < 100 ? "v" + i : null, f.get(PLAIN, "k" + i));
    }
    assertEquals(1, f.engine.getRequests);
  }

  @Test
  void idleStoresMakeRoomForTheOneInUse() {
    TierBudget budget = new TierBudget(1 << 20);
    Fixture idle = new Fixture(budget);
    idle.begin();
    for (int i = 0; i < 5_000; i++) {
      idle.put(PLAIN, "k" + i, "x".repeat(80));
    }
    idle.commit();
    assertTrue(idle.tier.accountedBytes() > budget.limitBytes() / 2);
    Fixture busy = new Fixture(budget);
    busy.begin();
    for (int i = 0; i < 4_000; i++) {
      busy.put(PLAIN, "k" + i, "y".repeat(80));
    }
    busy.commit();
    assertTrue(budget.peakBytes() <= budget.limitBytes() + 4096, "peak " + budget.peakBytes());
    assertTrue(idle.tier.stats().evictions() > 0);
    assertTrue(
        busy.tier.accountedBytes() > budget.limitBytes() / 5,
        "busy holds " + busy.tier.accountedBytes());
    idle.begin();
    for (int i = 0; i < 5_000; i++) {
      assertEquals("x".repeat(80), idle.get(PLAIN, "k" + i));
    }
  }

  @Test
  void eightHundredSmallStoresCostLittle() {
    TierBudget budget = new TierBudget(64 << 20);
    List<Fixture> stores = new ArrayList<>();
    for (int i = 0; i < 800; i++) {
      Fixture f = new Fixture(budget);
      stores.add(f);
      f.begin();
      f.commit();
    }
    assertEquals(0, budget.accountedBytes(), "empty stores hold nothing");
    for (Fixture f : stores) {
      f.begin();
      for (int i = 0; i < 10; i++) {
        f.put(PLAIN, "k" + i, "v");
      }
      f.commit();
    }
    assertTrue(budget.accountedBytes() < 800 * 4096, "accounted " + budget.accountedBytes());
  }

  @Test
  void aDroppedFamilyIsOneWrite() {
    Fixture f = new Fixture(1 << 20);
    f.begin();
    f.session.createFamily(9, true, false);
    f.put(9, "k", "v");
    f.commit();
    f.begin();
    f.session.dropFamily(9);
    assertEquals(1, f.session.finishWrites().rows());
    f.session.abort();
    f.begin();
    assertEquals("v", f.get(9, "k"));
    f.session.dropFamily(9);
    f.commit();
    assertTrue(f.engine.state(f.engine.newest(), 9).isEmpty());
    f.begin();
    assertThrows(IllegalArgumentException.class, () -> f.get(9, "k"));
  }

  @Test
  void aKeyPutAndRemovedInOneSessionIsNotWritten() {
    Fixture f = new Fixture(1 << 20);
    f.begin();
    f.put(PLAIN, "k", "v");
    f.remove(PLAIN, "k");
    f.remove(PLAIN, "never");
    assertEquals(new Sent(0, 0, 0), f.session.finishWrites());
  }

  @Test
  void writesAreSentAgainToAWorkerThatLostThem() {
    Fixture f = new Fixture(1 << 20);
    f.begin();
    f.put(PLAIN, "k", "v");
    f.append("list", "a");
    Sent first = f.session.finishWrites();
    f.engine.begin(0);
    assertTrue(f.session.rewindWrites());
    assertEquals(first, f.session.finishWrites());
    f.engine.commit();
    f.session.commit(1, "v1");
    assertArrayEquals(bytes("a"), f.engine.state(1, LISTS).get(bytes("list")));
  }

  @Test
  void aSessionThatSpilledIsNotSentAgain() {
    Fixture f = new Fixture(64 << 10);
    f.begin();
    f.fillUntilSpilled();
    assertFalse(f.session.rewindWrites());
  }

  @Test
  void aSpillThatFailsHalfWayEndsTheWrites() {
    Fixture f = new Fixture(64 << 10);
    f.begin();
    f.engine.failsWrites = true;
    assertThrows(IllegalStateException.class, f::fillUntilSpilled, "worker lost");
    f.engine.failsWrites = false;
    assertTrue(f.session.hasSpilled());
    assertThrows(IllegalStateException.class, () -> f.put(PLAIN, "k", "v"));
    assertThrows(IllegalStateException.class, f.session::finishWrites);
    f.session.abort();
    f.begin();
    f.put(PLAIN, "k", "v");
    f.commit();
    assertEquals(1, f.tier.entries(PLAIN));
  }

  @Test
  void theRowBehindTheVersionByteIsAligned() {
    Fixture f = new Fixture(1 << 20);
    f.begin();
    byte[] value = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int length = 1; length < 40; length++) {
      byte[] key = new byte[length];
      ValueRef out = new ValueRef();
      f.session.put(PLAIN, key, Regions.ARRAY, length, value, Regions.ARRAY, 8, true);
      assertTrue(f.session.get(PLAIN, key, Regions.ARRAY, length, out));
      assertEquals(0, (out.offset + 1) % 8);
      assertArrayEquals(
          new byte[] {0, 1, 2, 3, 4, 5, 6, 7, 8}, Regions.copy(out.base, out.offset, out.length));
    }
  }

  @Test
  void anEntryLargerThanTheBudgetIsSpilledAtOnce() {
    Fixture f = new Fixture(32 << 10);
    f.begin();
    String large = "x".repeat(200_000);
    f.put(PLAIN, "large", large);
    f.put(PLAIN, "small", "v");
    assertTrue(f.session.hasSpilled());
    assertEquals(large, f.get(PLAIN, "large"));
    f.commit();
    assertTrue(f.tier.accountedBytes() <= 32 << 10);
    f.begin();
    assertEquals(large, f.get(PLAIN, "large"));
    assertEquals("v", f.get(PLAIN, "small"));
  }

  @Test
  void closingWithAnOpenSessionFreesWhenItEnds() {
    TierBudget budget = new TierBudget(1 << 20);
    Fixture f = new Fixture(budget);
    f.begin();
    f.put(PLAIN, "k", "v");
    f.tier.close();
    f.session.abort();
    assertEquals(0, budget.accountedBytes());
    assertThrows(IllegalStateException.class, f::begin);
  }

  @Test
  void aSessionIsOneAtATimeAndDeadAfterItsEnd() {
    Fixture f = new Fixture(1 << 20);
    TierSession first = f.begin();
    assertThrows(IllegalStateException.class, f::begin);
    TierCursor cursor = first.scan(PLAIN);
    first.abort();
    first.abort();
    assertThrows(IllegalStateException.class, cursor::next);
    assertThrows(IllegalStateException.class, () -> first.scan(PLAIN));
    f.begin();
    assertThrows(
        IllegalStateException.class, () -> f.session.commit(1, "v1"), "writes not finished");
    f.session.finishWrites();
    assertThrows(IllegalStateException.class, () -> f.put(PLAIN, "k", "v"));
  }

  @Test
  void steadyInsertAndDeleteDoesNotGrow() {
    Fixture f = new Fixture(64 << 20);
    long after10 = 0;
    for (int batch = 0; batch < 100; batch++) {
      f.begin();
      for (int i = 0; i < 500; i++) {
        f.put(ORDERED, "k" + (batch * 500 + i), "x".repeat(40));
        if (batch > 3) {
          f.remove(ORDERED, "k" + ((batch - 4) * 500 + i));
        }
      }
      f.commit();
      after10 = batch == 10 ? f.tier.accountedBytes() : after10;
    }
    assertTrue(f.tier.isComplete(ORDERED));
    assertEquals(2_000, f.tier.entries(ORDERED));
    assertTrue(
        f.tier.accountedBytes() < after10 * 2,
        f.tier.accountedBytes() + " bytes, after ten batches " + after10);
  }

  @Test
  void orderIsByUnsignedBytesWithPrefixesFirst() {
    byte[][] keys = {
      {},
      {0},
      {0, 0},
      {1},
      {1, 2, 3, 4, 5, 6, 7, 8},
      {1, 2, 3, 4, 5, 6, 7, 8, 0},
      {127},
      {-128},
      {-1},
      {-1, -1}
    };
    for (byte[] a : keys) {
      for (byte[] b : keys) {
        int expected = Integer.signum(Arrays.compareUnsigned(a, b));
        assertEquals(
            expected,
            Integer.signum(
                Regions.compare(a, Regions.ARRAY, a.length, b, Regions.ARRAY, b.length)));
      }
    }
  }
}
