package io.cairn.spark.cache;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.cache.memory.MemoryPool;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Families that a session makes and no version has. */
class FamilyLifeTest {
  /** One of an aborted session was left behind, incomplete after the next reset. */
  @Test
  void abortForgetsTheFamiliesThatTheSessionMade() {
    try (StateCache cache = new StateCache(new MemoryPool(1 << 20))) {
      MapEngine engine = new MapEngine(new Random(7));
      cache.reset(0, "v0", true);
      CacheSession aborted = cache.begin(engine);
      aborted.createFamily(9, false, false);
      aborted.abort();
      cache.reset(0, "again", false);

      CacheSession session = cache.begin(engine);
      session.createFamily(9, true, false);

      assertTrue(CacheFixture.isComplete(cache, 9));
      session.abort();
    }
  }
}
