package io.cairn.spark.cache;

import static io.cairn.spark.cache.CacheFixture.LISTS;
import static io.cairn.spark.cache.CacheFixture.ORDERED;
import static io.cairn.spark.cache.CacheFixture.PLAIN;
import static io.cairn.spark.cache.CacheFixture.bytes;
import static io.cairn.spark.cache.CacheFixture.rows;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.MemoryPool;
import org.junit.jupiter.api.Test;

class StateCacheTest {
  @Test
  void abortAfterOverwritingAPinnedKey() {
    CacheFixture f = new CacheFixture(1 << 20);
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
    CacheFixture f = new CacheFixture(64 << 10);
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

  /** The next session must not read rows of a version that does not exist. */
  @Test
  void aCommitThatFailsLeavesTheCacheAtItsVersion() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    f.put(PLAIN, "k", "one");
    f.commit();
    f.begin();
    f.put(PLAIN, "k", "two");
    f.put(ORDERED, "new", "two");
    f.session.sendWrites();
    f.session.abort();

    assertEquals(1, f.cache.version());
    f.begin();
    assertEquals("one", f.get(PLAIN, "k"));
    assertNull(f.get(ORDERED, "new"));
  }

  /** The engine lost the writes during the commit: they are sent again as they were. */
  @Test
  void writesAreSentAgainToAnotherEngine() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    f.put(PLAIN, "gone", "one");
    f.append("list", "a");
    f.commit();
    f.begin();
    f.put(PLAIN, "k", "two");
    f.remove(PLAIN, "gone");
    f.append("list", "b");
    f.session.sendWrites();
    f.engine.begin(1);
    f.session.sendWrites();
    f.engine.commit();
    f.session.commit(2, "v2");

    assertEquals(2, f.cache.version());
    assertEquals("v2", f.cache.checkpointId());
    f.forget();
    f.begin();
    assertEquals("two", f.get(PLAIN, "k"));
    assertNull(f.get(PLAIN, "gone"));
    assertEquals("ab", f.get(LISTS, "list"));
  }

  /** The place of a key that was read may change before the key is written. */
  @Test
  void aWriteAfterAReadOfItsKeyFindsTheKeyWhereItIs() {
    CacheFixture f = new CacheFixture(64 << 10);
    f.begin();
    f.put(PLAIN, "k", "committed");
    f.append("list", "a");
    f.commit();
    f.begin();
    // Grown to another place.
    f.put(PLAIN, "k", "one");
    assertEquals("one", f.get(PLAIN, "k"));
    f.put(PLAIN, "k", "1".repeat(100));
    f.put(PLAIN, "k", "2".repeat(1_000));
    assertEquals("2".repeat(1_000), f.get(PLAIN, "k"));
    // The same key of another family.
    assertNull(f.get(ORDERED, "k"));
    f.put(PLAIN, "k", "three");
    f.put(ORDERED, "k", "ordered");
    assertEquals("three", f.get(PLAIN, "k"));
    // Spilled between read and write, and by the write.
    f.fillUntilSpilled();
    assertEquals("three", f.get(PLAIN, "k"));
    f.put(PLAIN, "k", "x".repeat(60_000));
    assertEquals(60_000, f.get(PLAIN, "k").length());
    f.remove(PLAIN, "k");
    assertNull(f.get(PLAIN, "k"));
    f.put(PLAIN, "k", "last");
    assertEquals("a", f.get(LISTS, "list"));
    f.append("list", "b");
    assertEquals("ab", f.get(LISTS, "list"));
    f.commit();

    assertEquals("last", CacheFixture.text(new ByteSpan(f.engine.state(2, PLAIN).get(bytes("k")))));
    f.begin();
    assertEquals("last", f.get(PLAIN, "k"));
    assertEquals("ordered", f.get(ORDERED, "k"));
    assertEquals("ab", f.get(LISTS, "list"));
  }

  /** A read says whether the key is committed: the engine counts the keys by that. */
  @Test
  void aWriteAfterAReadFromTheEngineKnowsWhetherItsKeyIsCommitted() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    f.put(PLAIN, "present", "one");
    f.commitAndBeginElsewhere();
    assertEquals("one", f.get(PLAIN, "present"));
    f.put(PLAIN, "present", "two");
    assertNull(f.get(PLAIN, "absent"));
    f.remove(PLAIN, "absent");
    f.put(PLAIN, "unread", "two");
    // The engine of this test fails if a presence is wrong.
    f.commit();
    assertEquals(2, f.engine.getRequests);
    // That of the key that was not read.
    assertEquals(1, f.engine.unknownPresences);
  }

  @Test
  void anAppendToALongListCostsNoRead() {
    CacheFixture f = new CacheFixture(8 << 20);
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
  void appendsCostTheSameForLongLists() {
    CacheFixture f = new CacheFixture(16 << 20);
    f.begin();
    int rows = 100_000;
    for (int i = 0; i < rows; i++) {
      f.append("list", "0123456789");
    }
    // Growth leaves old copies behind: together a few times the list at most.
    assertTrue(f.cache.accountedBytes() < rows * 10L * 6, "accounted " + f.cache.accountedBytes());
    f.commit();
    for (int batch = 0; batch < 200; batch++) {
      f.begin();
      f.append("list", "0123456789");
      f.commit();
    }
    f.begin();
    assertEquals((rows + 200) * 10, f.get(LISTS, "list").length());
    assertTrue(f.cache.accountedBytes() < rows * 10L * 4, "accounted " + f.cache.accountedBytes());
    assertEquals(0, f.engine.getRequests);
  }

  @Test
  void aCompleteFamilySendsNoRequest() {
    CacheFixture f = new CacheFixture(8 << 20);
    for (int batch = 0; batch < 5; batch++) {
      f.begin();
      for (int i = 0; i < 1_000; i++) {
        assertNull(f.get(ORDERED, batch + "-" + i));
        f.put(ORDERED, batch + "-" + i, "v");
      }
      f.remove(ORDERED, batch + "-7");
      f.commit();
      assertEquals(999L * (batch + 1), f.entries(ORDERED));
    }
    f.begin();
    assertEquals(999 * 5, rows(f.session.scan(ORDERED)).size());
    assertEquals(999, rows(f.session.range(ORDERED, bytes("3-"), bytes("3."))).size());
    assertNull(f.get(ORDERED, "2-7"));
    assertEquals(0, f.engine.getRequests + f.engine.scanRequests);
  }

  @Test
  void aLoadMakesAllFamiliesCompleteWhenTheyFit() {
    CacheFixture f = new CacheFixture(8 << 20);
    f.begin();
    for (int i = 0; i < 500; i++) {
      f.put(ORDERED, "k" + i, "v" + i);
      f.append("list" + i, "e");
    }
    f.commit();
    f.forget();
    assertFalse(f.isComplete(ORDERED));
    f.begin();
    f.refillUntil(() -> false);
    assertTrue(f.isComplete(ORDERED) && f.isComplete(PLAIN));
    long requestsBefore = f.engine.scanRequests;
    assertEquals(500, rows(f.session.range(ORDERED, null, null)).size());
    assertEquals("v7", f.get(ORDERED, "k7"));
    assertNull(f.get(PLAIN, "k7"));
    assertEquals(requestsBefore, f.engine.scanRequests + f.engine.getRequests);
  }

  @Test
  void aLoadThatDoesNotFitLeavesTheFamiliesIncomplete() {
    CacheFixture f = new CacheFixture(32 << 10);
    f.begin();
    for (int i = 0; i < 2_000; i++) {
      f.put(ORDERED, "k" + i, "x".repeat(50));
    }
    f.commitAndBeginElsewhere();
    f.refillUntil(() -> false);
    assertFalse(f.isComplete(ORDERED));
    assertEquals(2_000, rows(f.session.range(ORDERED, null, null)).size());
    assertEquals(2_000, rows(f.session.scan(ORDERED)).size());
  }

  @Test
  void keysFetchedInBulkAreReadWithoutTheEngine() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    for (int i = 0; i < 100; i++) {
      f.put(PLAIN, "k" + i, "v" + i);
    }
    f.commitAndBeginElsewhere();
    byte[][] keys = new byte[200][];
    for (int i = 0; i < keys.length; i++) {
      keys[i] = bytes("k" + i);
    }
    f.session.prefetch(PLAIN, keys);
    assertEquals(1, f.engine.getRequests);
    for (int i = 0; i < keys.length; i++) {
      assertEquals(i < 100 ? "v" + i : null, f.get(PLAIN, "k" + i));
    }
    assertEquals(1, f.engine.getRequests);
  }

  @Test
  void aDroppedFamilyIsOneWrite() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    f.session.createFamily(9, true, false);
    f.put(9, "k", "v");
    f.commit();
    f.begin();
    f.session.dropFamily(9);
    f.engine.rows = 0;
    f.session.sendWrites();
    assertEquals(1, f.engine.rows);
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
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    f.put(PLAIN, "k", "v");
    f.remove(PLAIN, "k");
    f.remove(PLAIN, "never");
    f.session.sendWrites();
    assertEquals(0, f.engine.rows);
  }

  @Test
  void writesAreSentAgainToAWorkerThatLostThem() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    f.put(PLAIN, "k", "v");
    f.append("list", "a");
    f.session.sendWrites();
    f.engine.begin(0);
    f.session.sendWrites();
    assertEquals(4, f.engine.rows);
    f.engine.commit();
    f.session.commit(1, "v1");
    assertArrayEquals(bytes("a"), f.engine.state(1, LISTS).get(bytes("list")));
  }

  @Test
  void aSpillThatFailsHalfWayEndsTheSession() {
    CacheFixture f = new CacheFixture(64 << 10);
    f.begin();
    f.engine.failsWrites = true;
    assertThrows(IllegalStateException.class, f::fillUntilSpilled, "worker lost");
    f.engine.failsWrites = false;
    assertTrue(f.session.hasSpilled());
    assertThrows(IllegalStateException.class, () -> f.put(PLAIN, "k", "v"));
    assertThrows(IllegalStateException.class, f.session::sendWrites);
    f.session.abort();
    f.begin();
    f.put(PLAIN, "k", "v");
    f.commit();
    assertEquals(1, f.entries(PLAIN));
  }

  @Test
  void theRowAfterTheVersionByteIsAligned() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    byte[] value = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int length = 1; length < 40; length++) {
      ByteSpan key = new ByteSpan(new byte[length]);
      ByteSpan out = new ByteSpan();
      f.session.put(PLAIN, key, new ByteSpan(value), true);
      assertTrue(f.session.get(PLAIN, key, out));
      assertEquals(0, (out.offset + 1) % 8);
      assertArrayEquals(new byte[] {0, 1, 2, 3, 4, 5, 6, 7, 8}, out.toArray());
    }
  }

  @Test
  void onlyOneSessionIsOpenAndNoneIsUsableAfterItsEnd() {
    CacheFixture f = new CacheFixture(1 << 20);
    CacheSession first = f.begin();
    assertThrows(IllegalStateException.class, f::begin);
    RowCursor cursor = first.scan(PLAIN);
    first.abort();
    first.abort();
    assertThrows(IllegalStateException.class, cursor::next);
    assertThrows(IllegalStateException.class, () -> first.scan(PLAIN));
    f.begin();
    assertThrows(
        IllegalStateException.class, () -> f.session.commit(1, "v1"), "writes not finished");
    f.session.sendWrites();
    assertThrows(IllegalStateException.class, () -> f.put(PLAIN, "k", "v"));
  }

  /** Otherwise every later task of the store fails, because a session is open already. */
  @Test
  void anAbortThatFailsEndsTheSessionAndEmptiesTheCache() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    f.put(ORDERED, "k", "one");
    f.append("list", "a");
    f.commit();
    f.begin();
    RowCursor scan = f.session.scan(LISTS);
    assertTrue(scan.next());
    f.put(ORDERED, "k", "two");
    f.append("list", "b");
    f.fillUntilSpilled();
    assertNull(f.get(ORDERED, "absent"));
    loseEntry(f, ORDERED, "absent");

    assertThrows(IllegalStateException.class, f.session::abort);

    assertEquals(-1, f.cache.version());
    assertEquals(0, f.cache.accountedBytes());
    assertThrows(IllegalStateException.class, scan::next);
    scan.close();
    f.forget();
    f.begin();
    assertEquals("one", f.get(ORDERED, "k"));
    assertNull(f.get(ORDERED, "absent"));
    assertEquals("a", f.get(LISTS, "list"));
    f.append("list", "c");
    f.commit();
    f.begin();
    assertEquals("ac", f.get(LISTS, "list"));
  }

  /** What only an error could do: a slab has an entry that the indexes lack. */
  private static void loseEntry(CacheFixture f, int family, String key) {
    CachedFamily of = f.cache.committed.families.get(family);
    ByteSpan span = CacheFixture.span(key);
    int address = of.find(Bytes.hash(span), span);
    assertTrue(address != 0, "not cached");
    of.unlink(address);
  }

  /** Otherwise every later task of the store waits for ever. */
  @Test
  void aSessionThatCannotBeginLeavesTheCacheFree() {
    MemoryPool pool = new MemoryPool(1 << 20);
    CacheFixture f = new CacheFixture(pool);
    f.begin();
    f.put(PLAIN, "k", "one");
    f.commit();
    long writeBytes = pool.writeBytes();
    f.engine.failsAtOnce = true;
    assertThrows(IllegalStateException.class, f::begin);

    assertTrue(f.cache.evictIfIdle(1), "a store that is in use for ever");
    for (int i = 0; i < 3; i++) {
      assertThrows(IllegalStateException.class, f::begin);
    }
    assertEquals(writeBytes, pool.writeBytes(), "sessions that are counted as open");
    f.engine.failsAtOnce = false;
    f.begin();
    assertEquals("one", f.get(PLAIN, "k"));
  }

  @Test
  void largeValuesRequestedTogetherNeedSeveralReplies() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    byte[][] keys = new byte[10][];
    for (int i = 0; i < keys.length; i++) {
      keys[i] = bytes("k" + i);
      f.put(PLAIN, "k" + i, "v" + i);
    }
    f.commitAndBeginElsewhere();
    f.engine.mostKeys = 3;
    f.session.prefetch(PLAIN, keys);
    assertEquals(4, f.engine.getRequests);
    for (int i = 0; i < keys.length; i++) {
      assertEquals("v" + i, f.get(PLAIN, "k" + i));
    }
    assertEquals(4, f.engine.getRequests);
  }

  /** Otherwise the next reset would find the incomplete family of an aborted session. */
  @Test
  void abortForgetsTheFamiliesThatTheSessionCreated() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    f.session.createFamily(9, false, false);
    f.session.abort();
    f.forget();

    f.begin();
    f.session.createFamily(9, true, false);

    assertTrue(f.isComplete(9));
  }
}
