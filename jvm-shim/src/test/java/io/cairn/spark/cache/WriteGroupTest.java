package io.cairn.spark.cache;

import static io.cairn.spark.cache.CacheFixture.LISTS;
import static io.cairn.spark.cache.CacheFixture.ORDERED;
import static io.cairn.spark.cache.CacheFixture.PLAIN;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** Writes that follow each other without a read. */
class WriteGroupTest {
  private final CacheFixture f = new CacheFixture(64 << 20);

  @Test
  void theLastWriteOfAKeyCounts() {
    f.begin();
    for (int i = 0; i < 100; i++) {
      f.put(PLAIN, "k", "v" + i);
      f.put(PLAIN, "removed", "v" + i);
      f.remove(PLAIN, "removed");
      f.remove(PLAIN, "never");
    }
    f.commit();
    assertEquals(1, f.engine.state(1, PLAIN).size());
    assertArrayEquals(CacheFixture.bytes("v99"), f.engine.state(1, PLAIN).get(bytes("k")));
  }

  private static byte[] bytes(String text) {
    return CacheFixture.bytes(text);
  }

  /** A group has the rows of one family: the others must not overtake it or be lost. */
  @Test
  void writesOfFamiliesThatTakeTurnsAreAllCommitted() {
    f.begin();
    for (int i = 0; i < 50; i++) {
      f.put(PLAIN, "k" + i, "plain");
      f.put(ORDERED, "k" + i, "ordered");
      f.append("k", "x");
    }
    f.commit();
    assertEquals(50, f.engine.state(1, PLAIN).size());
    assertEquals(50, f.engine.state(1, ORDERED).size());
    assertEquals(50, f.engine.state(1, LISTS).get(bytes("k")).length);
  }

  @Test
  void readsAndScansHaveTheWritesBeforeThem() {
    f.begin();
    f.put(PLAIN, "a", "1");
    assertEquals("1", f.get(PLAIN, "a"));
    f.put(PLAIN, "b", "2");
    f.remove(PLAIN, "a");
    assertNull(f.get(PLAIN, "a"));
    f.put(PLAIN, "c", "3");
    TreeMap<String, String> rows = CacheFixture.rows(f.session.scan(PLAIN));
    assertEquals("{b=2, c=3}", rows.toString());
    f.put(ORDERED, "d", "4");
    assertEquals("{d=4}", CacheFixture.rows(f.session.range(ORDERED, null, null)).toString());
  }

  /** The row is no part of a group, and those before it are older. */
  @Test
  void aLargeRowReplacesASmallOneOfItsKey() {
    String large = "x".repeat(5_000);
    f.begin();
    f.put(PLAIN, "k", "small");
    f.put(PLAIN, "k", large);
    assertEquals(large, f.get(PLAIN, "k"));
    f.put(PLAIN, "k2", large);
    f.put(PLAIN, "k2", "small");
    f.commit();
    assertArrayEquals(bytes(large), f.engine.state(1, PLAIN).get(bytes("k")));
    assertArrayEquals(bytes("small"), f.engine.state(1, PLAIN).get(bytes("k2")));
  }

  @Test
  void anAbortDropsTheWritesOfTheGroup() {
    f.begin();
    f.put(PLAIN, "k", "v");
    f.session.abort();
    f.begin();
    assertNull(f.get(PLAIN, "k"));
    f.commit();
    assertEquals(0, f.engine.state(1, PLAIN).size());
  }

  /** Otherwise a caller that ignores the error commits without the rest of the group. */
  @Test
  void aGroupThatFailsHalfWayEndsTheSession() {
    CacheFixture small = new CacheFixture(64 << 10);
    small.begin();
    small.engine.failsWrites = true;
    assertThrows(IllegalStateException.class, small::fillUntilSpilled, "worker lost");
    small.engine.failsWrites = false;

    assertTrue(small.session.hasSpilled());
    assertThrows(IllegalStateException.class, () -> small.put(PLAIN, "k", "v"));
    assertThrows(IllegalStateException.class, small.session::sendWrites);
    small.session.abort();
  }
}
