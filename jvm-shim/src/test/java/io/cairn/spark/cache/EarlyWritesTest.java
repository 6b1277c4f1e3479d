package io.cairn.spark.cache;

import static io.cairn.spark.cache.CacheFixture.LISTS;
import static io.cairn.spark.cache.CacheFixture.ORDERED;
import static io.cairn.spark.cache.CacheFixture.PLAIN;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.bytes.ByteSpan;
import org.junit.jupiter.api.Test;

/** When a session sends writes before its commit, and when it does not. */
class EarlyWritesTest {
  private static final long POOL_BYTES = 200 << 20;

  private static CacheFixture fixture(int minWrites, long poolBytes) {
    CacheFixture fixture = new CacheFixture(poolBytes);
    fixture.cache.committed.earlyPolicy.minWrites = minWrites;
    fixture.begin();
    return fixture;
  }

  /** Each put is followed by a read, so that none waits in a group. */
  private static void put(CacheFixture fixture, int family, int from, int to, String value) {
    for (int key = from; key < to; key++) {
      fixture.put(family, "key" + key, value);
      assertEquals(value, fixture.get(family, "key" + key));
    }
  }

  /** The commit sends only what is new since the last early frame. */
  @Test
  void manyWritesAreSentBeforeTheCommit() {
    CacheFixture fixture = fixture(10, POOL_BYTES);
    put(fixture, PLAIN, 0, 15, "a");
    put(fixture, ORDERED, 0, 10, "b");
    assertEquals(20, fixture.engine.earlyRows);

    fixture.commit();

    assertEquals(5, fixture.engine.rows);
    assertEquals(15, fixture.engine.state(1, PLAIN).size());
    assertEquals(10, fixture.engine.state(1, ORDERED).size());
  }

  @Test
  void fewWritesAreNotSentBeforeTheCommit() {
    CacheFixture fixture = fixture(10, POOL_BYTES);
    put(fixture, PLAIN, 0, 10, "a");

    fixture.commit();

    assertEquals(0, fixture.engine.earlyRowsEver);
    assertEquals(10, fixture.engine.rows);
  }

  /** Most rows of the changelog would not count. */
  @Test
  void aStoreWhoseKeysAreWrittenAgainPauses() {
    CacheFixture fixture = fixture(10, POOL_BYTES);
    put(fixture, PLAIN, 0, 11, "a");
    put(fixture, PLAIN, 0, 1, "b");
    put(fixture, PLAIN, 11, 21, "a");
    put(fixture, PLAIN, 1, 3, "b");
    assertEquals(21, fixture.engine.earlyRows, "key 0 twice");
    put(fixture, PLAIN, 21, 100, "a");
    assertEquals(21, fixture.engine.earlyRows, "the keys of 3 rows were written again");
    fixture.commit();
    assertEquals(3, fixture.engine.repeatedEver);
    assertEquals(2 + 80, fixture.engine.rows);

    for (int session = 0; session < 16; session++) {
      fixture.begin();
      put(fixture, PLAIN, 0, 30, "c");
      assertEquals(0, fixture.engine.earlyRows);
      fixture.commit();
      for (int reader = 0; reader < 3; reader++) {
        // A session without writes is none of the paused ones: it says nothing about the next.
        fixture.begin();
        assertEquals("c", fixture.get(PLAIN, "key0"));
        fixture.session.abort();
      }
    }
    fixture.begin();
    put(fixture, PLAIN, 0, 30, "d");
    assertEquals(20, fixture.engine.earlyRows);
    fixture.commit();
    assertEquals(100, fixture.engine.state(18, PLAIN).size());
  }

  /** Each frame has what is new since the one before, in place or moved because it grew. */
  @Test
  void aKeyThatIsWrittenAgainIsSentAgain() {
    CacheFixture fixture = fixture(50, POOL_BYTES);
    put(fixture, PLAIN, 0, 51, "a");
    fixture.put(PLAIN, "key0", "b");
    fixture.remove(PLAIN, "key1");
    fixture.put(PLAIN, "key2", "a value that needs more space");
    put(fixture, PLAIN, 51, 101, "a");
    assertEquals(50 + 53, fixture.engine.earlyRows);
    fixture.remove(PLAIN, "key0");
    fixture.put(PLAIN, "key1", "c");
    fixture.put(PLAIN, "key2", "d");
    assertEquals("d", fixture.get(PLAIN, "key2"));

    fixture.commit();

    assertEquals(1 + 3, fixture.engine.rows, "key 100, and the three again");
    assertEquals(6, fixture.engine.repeatedEver);
    assertEquals(100, fixture.engine.state(1, PLAIN).size());
    byte[] last = fixture.engine.state(1, PLAIN).get(CacheFixture.bytes("key1"));
    assertEquals("c", CacheFixture.text(new ByteSpan(last)));
  }

  /** The engine has the put of a key that is not committed: it must receive the delete. */
  @Test
  void aNewKeyThatWasSentAndRemovedIsAbsent() {
    CacheFixture fixture = fixture(2, POOL_BYTES);
    put(fixture, PLAIN, 0, 3, "a");
    fixture.remove(PLAIN, "key0");
    assertNull(fixture.get(PLAIN, "key0"));

    fixture.commit();

    assertEquals(2, fixture.engine.state(1, PLAIN).size());
  }

  /** Below the mark everything was sent, also what the commit would leave out. */
  @Test
  void aDeleteOfAnAbsentKeyThatIsWrittenAgainIsSent() {
    CacheFixture fixture = fixture(2, POOL_BYTES);
    fixture.put(PLAIN, "key0", "a");
    fixture.get(PLAIN, "key0");
    fixture.remove(PLAIN, "key0");
    put(fixture, PLAIN, 1, 6, "a");
    assertEquals(4, fixture.engine.earlyRows);
    fixture.put(PLAIN, "key0", "a value that needs more space");
    put(fixture, PLAIN, 1, 2, "a value that needs more space");

    fixture.commit();

    assertEquals(2, fixture.engine.repeatedEver);
    assertEquals(6, fixture.engine.state(1, PLAIN).size());
  }

  /** An append would have to be joined with what was sent. */
  @Test
  void listsAreNotSentEarly() {
    CacheFixture fixture = fixture(2, POOL_BYTES);
    for (int key = 0; key < 20; key++) {
      fixture.append("key" + key, "a");
      put(fixture, PLAIN, key, key + 1, "a");
    }

    fixture.commit();

    assertTrue(fixture.engine.earlyRowsEver < 20);
    assertEquals(20, fixture.engine.state(1, LISTS).size());
  }

  /** The spill has all writes: the engine must not have two orders of them. */
  @Test
  void afterASpillNoEarlyWriteCounts() {
    CacheFixture fixture = fixture(5, 30_000);
    put(fixture, PLAIN, 0, 20, "a");
    assertEquals(15, fixture.engine.earlyRows);

    fixture.fillUntilSpilled();
    put(fixture, PLAIN, 0, 50, "b");

    assertEquals(0, fixture.engine.earlyRows);
    fixture.commit();
    assertEquals("b", CacheFixture.text(new ByteSpan(value(fixture))));
  }

  /** The engine receives nothing for them, so nothing says that its early writes do not count. */
  @Test
  void afterASpillOfDeletesOfAbsentKeysAloneNoEarlyWriteCounts() {
    CacheFixture fixture = fixture(5, 30_000);
    for (int key = 0; fixture.session.spillCount() == 0; key++) {
      put(fixture, PLAIN, key, key + 1, "a");
      fixture.remove(PLAIN, "key" + key);
      assertNull(fixture.get(PLAIN, "key" + key));
    }
    assertTrue(fixture.engine.earlyRowsEver > 0);
    assertEquals(0, fixture.session.expectedRows());

    fixture.commit();

    assertEquals(0, fixture.engine.state(1, PLAIN).size());
  }

  private static byte[] value(CacheFixture fixture) {
    return fixture.engine.state(1, PLAIN).get(CacheFixture.bytes("key0"));
  }

  /** A part of a frame may be in the channel. */
  @Test
  void aSessionThatFailedToSendFailsForGood() {
    CacheFixture fixture = fixture(5, POOL_BYTES);
    put(fixture, PLAIN, 0, 5, "a");
    fixture.engine.failsWrites = true;
    fixture.put(PLAIN, "more", "a");
    assertThrows(IllegalStateException.class, () -> fixture.get(PLAIN, "more"));
    fixture.engine.failsWrites = false;

    assertThrows(IllegalStateException.class, () -> fixture.put(PLAIN, "more", "a"));
    assertThrows(IllegalStateException.class, fixture.session::sendWrites);
    fixture.session.abort();
    assertEquals(0, fixture.cache.version());
  }

  /** The engine keeps early writes in memory. */
  @Test
  void earlyWritesHaveABound() {
    CacheFixture fixture = fixture(1, POOL_BYTES);
    put(fixture, PLAIN, 0, 40, "x".repeat(1 << 20));

    assertTrue(fixture.engine.earlyRows >= 8, "rows: " + fixture.engine.earlyRows);
    assertTrue(fixture.engine.earlyRows < 16, "rows: " + fixture.engine.earlyRows);
    fixture.commit();
    assertEquals(40, fixture.engine.state(1, PLAIN).size());
  }
}
