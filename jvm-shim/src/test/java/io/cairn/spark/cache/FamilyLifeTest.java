package io.cairn.spark.tier;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import org.junit.jupiter.api.Test;

/** Families that a session makes and no version has. */
class FamilyLifeTest {
  /** One of an aborted session was left behind, incomplete after the next reset. */
  @Test
  void abortForgetsTheFamiliesThatTheSessionMade() {
    try (StoreTier tier = new StoreTier(new TierBudget(1 << 20))) {
      MapEngine engine = new MapEngine(new Random(7));
      tier.reset(0, "v0", true);
      TierSession aborted = tier.begin(engine);
      aborted.createFamily(9, false, false);
      aborted.abort();
      tier.reset(0, "again", false);

      TierSession session = tier.begin(engine);
      session.createFamily(9, true, false);

      assertTrue(tier.isComplete(9));
      session.abort();
    }
  }
}
