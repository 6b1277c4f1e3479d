package io.cairn.spark.cache;

import static io.cairn.spark.cache.CacheFixture.ORDERED;
import static io.cairn.spark.cache.CacheFixture.PLAIN;
import static io.cairn.spark.cache.CacheFixture.rows;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.cache.memory.MemoryPool;
import io.cairn.spark.protocol.WriteBlock;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The memory that caches reserve and release, and what they send when there is none. */
class CacheMemoryTest {
  @Test
  void idleStoresFreeMemoryForTheOneInUse() {
    MemoryPool pool = new MemoryPool(1 << 20);
    CacheFixture idle = new CacheFixture(pool);
    idle.begin();
    for (int i = 0; i < 5_000; i++) {
      idle.put(PLAIN, "k" + i, "x".repeat(80));
    }
    idle.commit();
    assertTrue(idle.cache.accountedBytes() > pool.limitBytes() / 2);
    CacheFixture busy = new CacheFixture(pool);
    busy.begin();
    for (int i = 0; i < 4_000; i++) {
      busy.put(PLAIN, "k" + i, "y".repeat(80));
    }
    busy.commit();
    assertTrue(pool.peakBytes() <= pool.limitBytes() + 4096, "peak " + pool.peakBytes());
    assertTrue(idle.cache.stats().evictions() > 0);
    assertTrue(
        busy.cache.accountedBytes() > pool.limitBytes() / 5,
        "busy holds " + busy.cache.accountedBytes());
    idle.begin();
    for (int i = 0; i < 5_000; i++) {
      assertEquals("x".repeat(80), idle.get(PLAIN, "k" + i));
    }
  }

  /** Rows that were requested are needed soon; those that were read may not be needed again. */
  @Test
  void requestedKeysOutliveAnEvictionUntilTheyAreRead() {
    CacheFixture f = new CacheFixture(4 << 20);
    f.commitRowsAndBeginElsewhere(60_000, "x".repeat(80));
    for (int i = 0; i < 30_000; i++) {
      f.get(PLAIN, unordered(i)); // more rows than there is memory for
    }
    byte[][] keys = new byte[6_000][];
    for (int i = 0; i < keys.length; i++) {
      // The first half is cached.
      keys[i] = CacheFixture.bytes("k" + (i < 3_000 ? 12_000 + i : 30_000 + i));
    }
    f.session.prefetcher.start(PLAIN, keys, keys.length).finish();
    long enough = f.cache.committed.eviction.evictedSlabs() + 8; // of 16 slabs
    for (int i = 40_000; f.cache.committed.eviction.evictedSlabs() < enough; i++) {
      assertTrue(i < 60_000, "no evictions");
      f.get(PLAIN, unordered(i));
    }
    long misses = f.cache.committed.keys.misses();
    for (byte[] key : keys) {
      assertEquals("x".repeat(80), f.get(PLAIN, new String(key, StandardCharsets.UTF_8)));
    }
    assertEquals(misses, f.cache.committed.keys.misses());
  }

  /** A key near this place; reads in the order of their keys are not cached. */
  private static String unordered(int place) {
    return "k" + (place ^ 1);
  }

  /** A large row has no place in another slab, so it cannot be moved out of the way. */
  @Test
  void aLargeRowThatIsReadOftenOutlivesOthers() {
    CacheFixture f = new CacheFixture(8 << 20);
    String large = "x".repeat(100_000);
    f.commitRowsAndBeginElsewhere(400, large);
    CommittedCache committed = f.cache.committed;
    for (int i = 1; i < 400; i++) {
      assertEquals(large, f.get(PLAIN, "k0"));
      assertEquals(large, f.get(PLAIN, "k" + i * 149 % 400));
    }

    assertTrue(committed.eviction.evictedSlabs() > 100);
    assertEquals(400, committed.keys.misses(), "k0 was evicted");
  }

  /** A session that needs no load learns from no answer what the engine has applied. */
  @Test
  void whatTheEngineHasAppliedIsKnownInTheNextSession() {
    CacheFixture f = new CacheFixture(1 << 20);
    CachedFamilies families = f.cache.committed.families;
    families.noteApplied(7);

    families.noteApplied(0);

    assertEquals(7, families.appliedThrough());
    f.cache.reset(3, "v3", false);
    assertEquals(0, families.appliedThrough());
  }

  /** Stores in use cannot evict each other. */
  @Test
  void aStoreInUseGivesTheMemoryAboveItsShareToAnother() {
    MemoryPool pool = new MemoryPool(8 << 20);
    CacheFixture first = new CacheFixture(pool);
    CacheFixture second = new CacheFixture(pool);
    for (CacheFixture f : List.of(first, second)) {
      f.commitRowsAndBeginElsewhere(100_000, "x".repeat(80));
    }
    for (int i = 0; i < 60_000; i++) {
      first.get(PLAIN, unordered(i));
    }
    assertTrue(first.cache.accountedBytes() > pool.limitBytes() * 3 / 4);
    for (int i = 0; i < 100_000; i++) {
      first.get(PLAIN, unordered(i));
      second.get(PLAIN, unordered(i));
    }
    assertTrue(
        second.cache.accountedBytes() > pool.limitBytes() / 3,
        "the second has " + second.cache.accountedBytes());
  }

  @Test
  void eightHundredSmallStoresCostLittle() {
    MemoryPool pool = new MemoryPool(64 << 20);
    List<CacheFixture> stores = new ArrayList<>();
    for (int i = 0; i < 800; i++) {
      CacheFixture f = new CacheFixture(pool);
      stores.add(f);
      f.begin();
      f.commit();
    }
    assertEquals(0, pool.accountedBytes(), "empty stores hold nothing");
    for (CacheFixture f : stores) {
      f.begin();
      for (int i = 0; i < 10; i++) {
        f.put(PLAIN, "k" + i, "v");
      }
      f.commit();
    }
    assertTrue(pool.accountedBytes() < 800 * 4096, "accounted " + pool.accountedBytes());
  }

  @Test
  void anEntryLargerThanThePoolIsSpilledAtOnce() {
    CacheFixture f = new CacheFixture(32 << 10);
    f.begin();
    String large = "x".repeat(200_000);
    f.put(PLAIN, "large", large);
    f.put(PLAIN, "small", "v");
    assertEquals(large, f.get(PLAIN, "large"));
    assertTrue(f.session.hasSpilled());
    f.commit();
    assertTrue(f.cache.accountedBytes() <= 32 << 10);
    f.begin();
    assertEquals(large, f.get(PLAIN, "large"));
    assertEquals("v", f.get(PLAIN, "small"));
  }

  /** Otherwise a session beside others that hold all memory sends a dozen rows at a time. */
  @Test
  void aSessionBesideFullOnesSendsNoTinyBlocks() {
    MemoryPool pool = new MemoryPool(16 << 20);
    List<CacheFixture> others = new ArrayList<>();
    while (pool.limitBytes() - pool.accountedBytes() > 1_500 && others.size() < 100) {
      CacheFixture other = new CacheFixture(pool);
      others.add(other);
      other.begin();
      long goal =
          Math.min(pool.limitBytes() / 5, (pool.limitBytes() - pool.accountedBytes()) / 3 + 1);
      for (int i = 0; other.cache.stats().bytes() < goal && other.engine.blocks == 0; i++) {
        other.put(PLAIN, "k" + i, "x".repeat(100));
      }
    }
    CacheFixture late = new CacheFixture(pool);
    late.begin();
    for (int i = 0; i < 10_000; i++) {
      late.put(PLAIN, "k" + i, "y".repeat(100));
    }
    late.commit();
    assertTrue(late.engine.blocks < 40, late.engine.blocks + " blocks");
    long most = pool.limitBytes() + (others.size() + 1) * (pool.guaranteedBytes() + 4096);
    assertTrue(pool.peakBytes() <= most, "peak " + pool.peakBytes());
    others.forEach(other -> other.session.abort());
    others.forEach(other -> other.cache.close());
    late.cache.close();
    assertEquals(0, pool.accountedBytes());
  }

  /** Beside other rows it would exceed the bound of a frame. */
  @Test
  void aLargeRowIsSentInItsOwnBlock() {
    CacheFixture f = new CacheFixture(64 << 20);
    f.begin();
    f.put(PLAIN, "a", "x".repeat(600_000));
    f.put(PLAIN, "b", "y".repeat(600_000));
    f.put(PLAIN, "c", "z".repeat(3 << 20));
    f.put(PLAIN, "d", "small");
    f.put(PLAIN, "e", "small");
    f.commit();
    assertEquals(4, f.engine.blocks);
  }

  /** The error comes before memory is used for a row that no frame can carry. */
  @Test
  void aRowTooLargeForAFrameIsRefused() {
    CacheFixture f = new CacheFixture(256 << 20);
    f.begin();
    String half = "x".repeat(WriteBlock.MAX_ROW_BYTES / 2);
    assertThrows(IllegalArgumentException.class, () -> f.put(PLAIN, "k", half + half));
    f.append("list", half);
    assertThrows(IllegalArgumentException.class, () -> f.append("list", half));
    f.put(PLAIN, "k", "small");
    f.commit();
    f.begin();
    assertEquals("small", f.get(PLAIN, "k"));
    assertEquals(half.length(), f.get(CacheFixture.LISTS, "list").length());
  }

  /** Only writes that the cache drops must be kept for another worker. */
  @Test
  void writesOfTheCommitAreNotASpill() {
    CacheFixture f = new CacheFixture(256 << 10);
    f.begin();
    f.put(PLAIN, "k", "v");
    f.commit();
    assertEquals(1, f.engine.blocks);
    assertEquals(0, f.engine.spillBlocks);
    f.begin();
    f.fillUntilSpilled();
    f.commit();
    assertEquals(f.engine.blocks - 2, f.engine.spillBlocks);
  }

  @Test
  void closingWithAnOpenSessionFreesWhenItEnds() {
    MemoryPool pool = new MemoryPool(1 << 20);
    CacheFixture f = new CacheFixture(pool);
    f.begin();
    f.put(PLAIN, "k", "v");
    f.cache.close();
    f.session.abort();
    assertEquals(0, pool.accountedBytes());
    assertThrows(IllegalStateException.class, f::begin);
  }

  /** A store that was large once must not keep the memory of others. */
  @Test
  void aStoreThatShrankGivesItsMemoryBack() {
    for (int family : new int[] {PLAIN, ORDERED}) {
      CacheFixture f = new CacheFixture(256 << 20);
      int keys = 100_000;
      f.begin();
      for (int i = 0; i < keys; i++) {
        f.put(family, "k" + i, "x".repeat(20));
      }
      f.commit();
      long full = f.cache.accountedBytes();
      f.begin();
      for (int i = 0; i < keys; i++) {
        if (i % 10_000 != 0) {
          f.remove(family, "k" + i);
        }
      }
      f.commit();
      long left = f.cache.accountedBytes();
      assertTrue(left < 100 << 10, left + " bytes for 10 keys, " + full + " before");
      assertTrue(f.isComplete(family));
      f.begin();
      assertEquals(10, rows(f.session.scan(family)).size());
      assertEquals("x".repeat(20), f.get(family, "k50000"));
      assertEquals(0, f.engine.getRequests + f.engine.scanRequests);
    }
  }

  /** Otherwise the largest store is evicted, although it is the only one that is used. */
  @Test
  void anIdleStoreIsEvictedBeforeABusyOne() {
    MemoryPool pool = new MemoryPool(3 << 20);
    CacheFixture idle = new CacheFixture(pool);
    CacheFixture busy = new CacheFixture(pool);
    CacheFixture other = new CacheFixture(pool);
    for (int batch = 0; batch < 10; batch++) {
      for (CacheFixture f : batch < 2 ? List.of(busy) : List.of(idle, busy)) {
        f.begin();
        for (int i = 0; i < 1_000; i++) {
          f.put(PLAIN, "k" + (batch * 1_000 + i), "x".repeat(80));
        }
        f.commit();
      }
    }
    assertTrue(busy.cache.accountedBytes() > idle.cache.accountedBytes());
    for (int batch = 0; batch < 60; batch++) {
      for (CacheFixture f : List.of(busy, other)) {
        f.begin();
        for (int i = 0; i < 1_000; i++) {
          f.put(PLAIN, "k" + i, "y".repeat(80));
        }
        f.commit();
      }
    }
    assertEquals(0, idle.cache.stats().evictions());
    assertTrue(pool.fairShareBytes(idle.cache.use()) < pool.fairShareBytes(busy.cache.use()) / 100);

    other.begin();
    for (int i = 0; i < 8_000; i++) {
      other.put(PLAIN, "k" + i, "z".repeat(80));
    }
    other.commit();

    assertTrue(idle.cache.stats().evictions() > 0);
    assertEquals(0, busy.cache.stats().evictions());
    assertTrue(busy.isComplete(PLAIN));
    assertTrue(pool.peakBytes() <= pool.limitBytes() + 4096, "peak " + pool.peakBytes());
    idle.begin();
    for (int i = 2_000; i < 10_000; i += 100) {
      assertEquals("x".repeat(80), idle.get(PLAIN, "k" + i));
    }
  }

  /** Stores that take turns, whatever their number, keep equal shares. */
  @Test
  void storesThatTakeTurnsHaveEqualShares() {
    MemoryPool pool = new MemoryPool(100_000);
    List<CacheFixture> stores = new ArrayList<>();
    for (int i = 0; i < 50; i++) {
      stores.add(new CacheFixture(pool));
    }
    for (int round = 0; round < 10; round++) {
      for (CacheFixture f : stores) {
        pool.noteUse(f.cache.use(), 10);
      }
    }
    for (CacheFixture f : stores) {
      long share = pool.fairShareBytes(f.cache.use());
      assertTrue(share > 1_500 && share < 2_500, share + " of 2000");
    }
  }

  @Test
  void steadyInsertAndDeleteDoesNotGrow() {
    CacheFixture f = new CacheFixture(64 << 20);
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
      after10 = batch == 10 ? f.cache.accountedBytes() : after10;
    }
    assertTrue(f.isComplete(ORDERED));
    assertEquals(2_000, f.entries(ORDERED));
    assertTrue(
        f.cache.accountedBytes() < after10 * 2,
        f.cache.accountedBytes() + " bytes, after ten batches " + after10);
  }
}
