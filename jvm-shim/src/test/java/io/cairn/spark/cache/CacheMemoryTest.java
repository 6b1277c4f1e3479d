package io.cairn.spark.tier;

import static io.cairn.spark.tier.TierFixture.ORDERED;
import static io.cairn.spark.tier.TierFixture.PLAIN;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** What the tier takes of its budget and gives back. */
class TierRoomTest {
  @Test
  void idleStoresMakeRoomForTheOneInUse() {
    TierBudget budget = new TierBudget(1 << 20);
    TierFixture idle = new TierFixture(budget);
    idle.begin();
    for (int i = 0; i < 5_000; i++) {
      idle.put(PLAIN, "k" + i, "x".repeat(80));
    }
    idle.commit();
    assertTrue(idle.tier.accountedBytes() > budget.limitBytes() / 2);
    TierFixture busy = new TierFixture(budget);
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
    List<TierFixture> stores = new ArrayList<>();
    for (int i = 0; i < 800; i++) {
      TierFixture f = new TierFixture(budget);
      stores.add(f);
      f.begin();
      f.commit();
    }
    assertEquals(0, budget.accountedBytes(), "empty stores hold nothing");
    for (TierFixture f : stores) {
      f.begin();
      for (int i = 0; i < 10; i++) {
        f.put(PLAIN, "k" + i, "v");
      }
      f.commit();
    }
    assertTrue(budget.accountedBytes() < 800 * 4096, "accounted " + budget.accountedBytes());
  }

  @Test
  void anEntryLargerThanTheBudgetIsSpilledAtOnce() {
    TierFixture f = new TierFixture(32 << 10);
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

  /** With all room held by others, each dozen of rows was once sent by itself. */
  @Test
  void aSessionBesideFullOnesSendsNoTinyBlocks() {
    TierBudget budget = new TierBudget(16 << 20);
    List<TierFixture> others = new ArrayList<>();
    while (budget.limitBytes() - budget.accountedBytes() > 1_500 && others.size() < 100) {
      TierFixture other = new TierFixture(budget);
      others.add(other);
      other.begin();
      long goal =
          Math.min(
              budget.limitBytes() / 5, (budget.limitBytes() - budget.accountedBytes()) / 3 + 1);
      for (int i = 0; other.tier.stats().bytes() < goal && other.engine.blocks == 0; i++) {
        other.put(PLAIN, "k" + i, "x".repeat(100));
      }
    }
    TierFixture late = new TierFixture(budget);
    late.begin();
    for (int i = 0; i < 10_000; i++) {
      late.put(PLAIN, "k" + i, "y".repeat(100));
    }
    late.commit();
    assertTrue(late.engine.blocks < 40, late.engine.blocks + " blocks");
    long most = budget.limitBytes() + (others.size() + 1) * (budget.guaranteedBytes() + 4096);
    assertTrue(budget.peakBytes() <= most, "peak " + budget.peakBytes());
    others.forEach(other -> other.session.abort());
    others.forEach(other -> other.tier.close());
    late.tier.close();
    assertEquals(0, budget.accountedBytes());
  }

  /**
   * A large row once passed alone, and failed beside others in a block over the channel's bound.
   */
  @Test
  void aLargeRowLeavesInABlockOfItsOwn() {
    TierFixture f = new TierFixture(64 << 20);
    f.begin();
    f.put(PLAIN, "a", "x".repeat(600_000));
    f.put(PLAIN, "b", "y".repeat(600_000));
    f.put(PLAIN, "c", "z".repeat(3 << 20));
    f.put(PLAIN, "d", "small");
    f.put(PLAIN, "e", "small");
    f.commit();
    assertEquals(4, f.engine.blocks);
  }

  /** The engine says how; before heap is spent on what no frame could carry. */
  @Test
  void whatNoFrameCarriesIsRefusedAtOnce() {
    TierFixture f = new TierFixture(256 << 20);
    f.begin();
    String half = "x".repeat(WriteBlock.MAX_ROW_BYTES / 2);
    assertThrows(IllegalArgumentException.class, () -> f.put(PLAIN, "k", half + half));
    f.append("list", half);
    assertThrows(IllegalArgumentException.class, () -> f.append("list", half));
    f.put(PLAIN, "k", "small");
    f.commit();
    f.begin();
    assertEquals("small", f.get(PLAIN, "k"));
    assertEquals(half.length(), f.get(TierFixture.LISTS, "list").length());
  }

  /** Only what the tier lets go of needs to be kept for another worker. */
  @Test
  void writesOfTheCommitAreNoSpillUnlessSomeWereSpilledBefore() {
    TierFixture f = new TierFixture(256 << 10);
    f.begin();
    f.put(PLAIN, "k", "v");
    f.commit();
    assertEquals(1, f.engine.blocks);
    assertEquals(0, f.engine.spillBlocks);
    f.begin();
    f.fillUntilSpilled();
    f.commit();
    assertEquals(f.engine.blocks - 1, f.engine.spillBlocks);
  }

  @Test
  void closingWithAnOpenSessionFreesWhenItEnds() {
    TierBudget budget = new TierBudget(1 << 20);
    TierFixture f = new TierFixture(budget);
    f.begin();
    f.put(PLAIN, "k", "v");
    f.tier.close();
    f.session.abort();
    assertEquals(0, budget.accountedBytes());
    assertThrows(IllegalStateException.class, f::begin);
  }

  @Test
  void steadyInsertAndDeleteDoesNotGrow() {
    TierFixture f = new TierFixture(64 << 20);
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
}
