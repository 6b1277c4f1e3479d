package io.cairn.spark.cache;

import static io.cairn.spark.cache.CacheFixture.LISTS;
import static io.cairn.spark.cache.CacheFixture.ORDERED;
import static io.cairn.spark.cache.CacheFixture.PLAIN;
import static io.cairn.spark.cache.CacheFixture.bytes;
import static io.cairn.spark.cache.CacheFixture.rows;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** Keys and prefixes that are requested before they are read. */
class PrefetchedReadsTest {
  @Test
  void aPrefetchedKeyNeedsNoRequestWhetherPresentOrAbsent() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    f.put(PLAIN, "k", "one");
    f.commitAndBeginElsewhere();
    byte[][] keys = {bytes("k"), bytes("absent"), bytes("k"), null};

    Prefetcher.Request request = f.session.prefetcher.start(PLAIN, keys, 3);
    request.finish();

    assertEquals("one", f.get(PLAIN, "k"));
    assertNull(f.get(PLAIN, "absent"));
    assertEquals(1, f.engine.getRequests);
    assertEquals(2, f.engine.keysRequested);
    assertEquals(2, f.session.prefetcher.hits());
    assertEquals(0, f.session.prefetcher.misses());
    assertNull(f.get(PLAIN, "other"));
    assertEquals(1, f.session.prefetcher.misses());
    assertNull(f.session.prefetcher.start(PLAIN, keys, 3), "all keys are cached");
  }

  /** A frame of all keys of a {@code multiGet} could be too large to be sent. */
  @Test
  void aRequestIsBoundedByTheBytesOfItsKeys() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    f.commitAndBeginElsewhere();
    byte[][] keys = new byte[5][KeySource.MAX_KEY_BYTES / 2];
    for (int i = 0; i < keys.length; i++) {
      keys[i][0] = (byte) i;
    }

    f.session.prefetch(PLAIN, keys);

    assertEquals(3, f.engine.getRequests);
    assertEquals(5, f.engine.keysRequested);
  }

  /** A join requests the elements of a list by its length, which it may have written before. */
  @Test
  void aValueWhoseLastWriteWasSpilledIsFoundAfterItsPrefetch() {
    CacheFixture f = new CacheFixture(64 << 10);
    f.begin();
    f.put(PLAIN, "changed", "one");
    f.put(PLAIN, "removed", "one");
    f.commitAndBeginElsewhere();
    f.put(PLAIN, "changed", "two");
    f.put(PLAIN, "new", "two");
    f.remove(PLAIN, "removed");
    f.fillUntilSpilled();
    byte[][] keys = {bytes("changed"), bytes("new"), bytes("removed")};
    ByteSpan out = new ByteSpan();

    f.session.prefetcher.start(PLAIN, keys, keys.length).finish();
    long before = f.engine.getRequests;

    for (String key : List.of("changed", "new")) {
      assertTrue(f.session.prefetcher.find(PLAIN, CacheFixture.span(key), out), key);
      assertEquals("two", CacheFixture.text(out));
    }
    assertFalse(f.session.prefetcher.find(PLAIN, CacheFixture.span("removed"), out));
    f.put(PLAIN, "changed", "three");
    assertTrue(f.session.prefetcher.find(PLAIN, CacheFixture.span("changed"), out));
    assertEquals("three", CacheFixture.text(out));
    assertEquals(before, f.engine.getRequests);
  }

  /** The reply has the committed value, and the session has spilled a newer one since. */
  @Test
  void ofAReplyFromBeforeASpillTheSpilledKeysAreNotCached() {
    CacheFixture f = new CacheFixture(64 << 10);
    f.begin();
    for (String key : List.of("put", "removed", "other")) {
      f.put(PLAIN, key, "one");
    }
    f.append("list", "one");
    f.commitAndBeginElsewhere();
    byte[][] keys = {bytes("put"), bytes("absent"), bytes("removed"), bytes("new"), bytes("other")};
    Prefetcher.Request request = f.session.prefetcher.start(PLAIN, keys, keys.length);
    Prefetcher.Request lists = f.session.prefetcher.start(LISTS, new byte[][] {bytes("list")}, 1);
    f.put(PLAIN, "put", "two");
    f.remove(PLAIN, "removed");
    f.fillUntilSpilled();
    f.put(PLAIN, "new", "two");
    f.append("list", "two");
    f.fillUntilSpilled();

    request.finish();
    lists.finish();

    assertEquals(2, f.session.prefetcher.hits());
    assertEquals("one", f.get(PLAIN, "other"));
    assertNull(f.get(PLAIN, "absent"));
    assertEquals(0, f.session.prefetcher.misses());
    assertEquals("two", f.get(PLAIN, "put"));
    assertNull(f.get(PLAIN, "removed"));
    assertEquals("two", f.get(PLAIN, "new"));
    assertEquals("onetwo", f.get(LISTS, "list"));
    f.commitAndBeginElsewhere();
    assertEquals("two", f.get(PLAIN, "put"));
    assertNull(f.get(PLAIN, "removed"));
  }

  /** A session on another executor, which has these committed keys and values. */
  private static CacheFixture withOrderedRows(String... keysAndValues) {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    for (int i = 0; i < keysAndValues.length; i += 2) {
      f.put(ORDERED, keysAndValues[i], keysAndValues[i + 1]);
    }
    f.commitAndBeginElsewhere();
    return f;
  }

  /** A session window reads the sessions of its key, and once more when it stores them. */
  @Test
  void aScanOfAPrefetchedPrefixNeedsNoRequest() {
    CacheFixture f = withOrderedRows("a1", "one", "a2", "two", "b1", "other");
    byte[][] prefixes = {bytes("c"), bytes("a"), bytes("c")};

    f.session.prefetcher.startPrefixes(ORDERED, prefixes, 3).finish();
    f.put(ORDERED, "a3", "new");
    f.remove(ORDERED, "a1");

    long scans = f.engine.scanRequests;
    assertEquals(new TreeMap<>(Map.of("a2", "two", "a3", "new")), prefixRows(f, "a"));
    assertEquals(new TreeMap<>(Map.of("a2", "two", "a3", "new")), prefixRows(f, "a"));
    assertEquals(new TreeMap<>(), prefixRows(f, "c"));
    assertEquals(scans, f.engine.scanRequests);
    assertEquals(2, f.session.prefetcher.hits());
    assertEquals(0, f.session.prefetcher.misses());
    assertEquals(new TreeMap<>(Map.of("b1", "other")), prefixRows(f, "b"));
    assertEquals(1, f.session.prefetcher.misses());
    assertNull(f.session.prefetcher.startPrefixes(ORDERED, prefixes, 3), "all are here");
  }

  /** A join takes up to two further rows of its index before it removes one. */
  @Test
  void rowsThatAreRemovedBehindTheirScanAreKnownToBeCommitted() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    for (int i = 0; i < 200; i++) {
      f.put(ORDERED, String.format("k%03d", i), "v");
    }
    f.commitAndBeginElsewhere();

    RowCursor scan = f.session.range(ORDERED, null, null);
    Deque<String> taken = new ArrayDeque<>();
    while (scan.next()) {
      taken.add(CacheFixture.text(scan.key));
      if (taken.size() > 2) {
        f.remove(ORDERED, taken.remove());
      }
    }
    f.commit();

    assertEquals(0, f.engine.unknownPresences);
    assertEquals(2, f.engine.state(f.engine.newest(), ORDERED).size());
  }

  /** A join reads the list of one time if the event time is a part of its key. */
  @Test
  void aKeyWithinAPrefetchedPrefixNeedsNoRequest() {
    CacheFixture f = withOrderedRows("a1", "one", "a11", "longer", "b1", "other");

    f.session.prefetcher.startPrefixes(ORDERED, new byte[][] {bytes("a")}, 1).finish();

    assertEquals("one", f.get(ORDERED, "a1"));
    assertNull(f.get(ORDERED, "a"));
    assertNull(f.get(ORDERED, "a2"));
    assertEquals(0, f.engine.getRequests);
    assertEquals("other", f.get(ORDERED, "b1"));
    f.put(ORDERED, "a2", "new");
    f.fillUntilSpilled();
    assertEquals("new", f.get(ORDERED, "a2"));
    assertEquals("one", f.get(ORDERED, "a1"));
  }

  /** The engine has newer rows of the prefix since. */
  @Test
  void rowsOfAPrefixFromBeforeASpillAreNotUsed() {
    CacheFixture f = new CacheFixture(64 << 10);
    f.begin();
    f.put(ORDERED, "a1", "one");
    f.commitAndBeginElsewhere();
    f.session.prefetcher.startPrefixes(ORDERED, new byte[][] {bytes("a")}, 1).finish();
    f.put(ORDERED, "a1", "two");
    f.put(ORDERED, "a2", "three");
    f.fillUntilSpilled();

    assertEquals(new TreeMap<>(Map.of("a1", "two", "a2", "three")), prefixRows(f, "a"));
  }

  /** The others take a second request, for which the task waits. */
  @Test
  void requestsOfPrefixesAreAsLargeAsAReplyCanAnswer() {
    CacheFixture f = new CacheFixture(1 << 20);
    byte[][] prefixes = withPrefixes(f, 200);
    f.session.prefetcher.startPrefixes(ORDERED, prefixes.clone(), prefixes.length).finish();

    int answered = (int) f.session.prefetcher.hits() / 2;
    int limit = f.session.prefetcher.prefixLimit(ORDERED);
    assertTrue(answered > 32 && answered < prefixes.length, "answered " + answered);
    assertEquals(answered - answered / 16, limit);
    f.commitAndBeginElsewhere();
    assertEquals(limit, f.session.prefetcher.prefixLimit(ORDERED));
    byte[][] some = Arrays.copyOfRange(prefixes, 100, 100 + limit);
    f.session.prefetcher.startPrefixes(ORDERED, some, limit).finish();
    assertEquals(limit, f.session.prefetcher.hits());
    assertEquals(limit + 1, f.session.prefetcher.prefixLimit(ORDERED));
    assertTrue(f.session.prefetcher.prefixLimit(LISTS) > prefixes.length, "another family");
  }

  /** Each of them would be a request of its scan. */
  @Test
  void prefixesThatAReplyLacksAreRequestedTogether() {
    CacheFixture f = new CacheFixture(1 << 20);
    byte[][] prefixes = withPrefixes(f, 110);

    f.session.prefetcher.startPrefixes(ORDERED, prefixes.clone(), prefixes.length).finish();

    long scans = f.engine.scanRequests;
    for (int i = 0; i < prefixes.length; i++) {
      String key = String.format("%03d", i);
      assertEquals(new TreeMap<>(Map.of(key, "value")), prefixRows(f, key));
    }
    assertEquals(scans, f.engine.scanRequests);
    assertEquals(prefixes.length, f.session.prefetcher.hits());
    assertEquals(0, f.session.prefetcher.misses());
  }

  @Test
  void prefixesThatAreSpilledBeforeTheReplyAreRequestedAgain() {
    CacheFixture f = new CacheFixture(64 << 10);
    byte[][] prefixes = withPrefixes(f, 20);
    Prefetcher.Request request =
        f.session.prefetcher.startPrefixes(ORDERED, prefixes.clone(), prefixes.length);
    f.put(ORDERED, "007", "new");
    f.fillUntilSpilled();

    request.finish();

    long scans = f.engine.scanRequests;
    assertEquals(new TreeMap<>(Map.of("006", "value")), prefixRows(f, "006"));
    assertEquals(new TreeMap<>(Map.of("007", "new")), prefixRows(f, "007"));
    assertEquals(scans, f.engine.scanRequests);
    assertEquals(prefixes.length, f.session.prefetcher.hits());
  }

  /** Opens a session on a store with these keys, "000" and up; returns the keys. */
  private static byte[][] withPrefixes(CacheFixture f, int count) {
    f.begin();
    byte[][] keys = new byte[count][];
    for (int i = 0; i < count; i++) {
      String key = String.format("%03d", i);
      f.put(ORDERED, key, "value");
      keys[i] = bytes(key);
    }
    f.commitAndBeginElsewhere();
    return keys;
  }

  private static TreeMap<String, String> prefixRows(CacheFixture f, String prefix) {
    byte[] from = bytes(prefix);
    return rows(f.session.range(ORDERED, from, Bytes.successor(from)));
  }

  /** A batch that reads its own spilled keys again would otherwise request each of them alone. */
  @Test
  void aPrefetchedSpilledKeyNeedsNoRequestUntilItIsSpilledAgain() {
    CacheFixture f = new CacheFixture(64 << 10);
    f.begin();
    f.put(PLAIN, "removed", "one");
    f.append("list", "one");
    f.commitAndBeginElsewhere();
    assertNull(f.get(PLAIN, "put"));
    assertEquals("one", f.get(PLAIN, "removed"));
    f.put(PLAIN, "put", "two");
    f.put(PLAIN, "again", "two");
    f.remove(PLAIN, "removed");
    f.append("list", "two");
    f.fillUntilSpilled();
    byte[][] keys = {bytes("removed"), bytes("put"), bytes("again")};

    f.session.prefetcher.start(PLAIN, keys, keys.length).finish();
    f.session.prefetcher.start(LISTS, new byte[][] {bytes("list")}, 1).finish();

    long requests = f.engine.getRequests;
    assertEquals(4, f.session.prefetcher.hits());
    assertEquals("two", f.get(PLAIN, "put"));
    assertNull(f.get(PLAIN, "removed"));
    assertEquals("onetwo", f.get(LISTS, "list"));
    f.put(PLAIN, "again", "three");
    f.append("list", "three");
    assertEquals("three", f.get(PLAIN, "again"));
    assertEquals("onetwothree", f.get(LISTS, "list"));
    assertEquals(requests, f.engine.getRequests);
    f.fillUntilSpilled();
    assertEquals("two", f.get(PLAIN, "put"));
    assertEquals(requests, f.engine.getRequests);
    assertEquals("three", f.get(PLAIN, "again"));
    assertEquals("onetwothree", f.get(LISTS, "list"));
    assertEquals(requests + 2, f.engine.getRequests);
    f.commitAndBeginElsewhere();
    assertEquals("two", f.get(PLAIN, "put"));
    assertNull(f.get(PLAIN, "removed"));
  }

  /** The next session must not read what this one has spilled. */
  @Test
  void thePrefetchedSpilledKeysOfAnAbortedSessionAreForgotten() {
    CacheFixture f = new CacheFixture(64 << 10);
    f.begin();
    f.put(PLAIN, "k", "one");
    f.commitAndBeginElsewhere();
    f.put(PLAIN, "k", "two");
    f.fillUntilSpilled();
    f.session.prefetcher.start(PLAIN, new byte[][] {bytes("k")}, 1).finish();
    assertEquals("two", f.get(PLAIN, "k"));

    f.session.abort();
    f.begin();

    assertEquals("one", f.get(PLAIN, "k"));
  }

  /** The next session is at another version. */
  @Test
  void aReplyToAnEndedSessionIsDropped() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    f.put(PLAIN, "k", "one");
    f.commitAndBeginElsewhere();
    Prefetcher.Request request = f.session.prefetcher.start(PLAIN, new byte[][] {bytes("k")}, 1);
    f.remove(PLAIN, "k");
    f.commitAndBeginElsewhere();

    request.finish();

    assertNull(f.get(PLAIN, "k"));
  }

  /** With all keys in the cache an absent key is known to be absent: nothing is requested. */
  @Test
  void aCompleteFamilyNeedsNoPrefetch() {
    CacheFixture f = new CacheFixture(1 << 20);
    f.begin();
    f.put(PLAIN, "k", "one");
    f.commit();
    f.begin();

    assertFalse(f.session.prefetcher.isUseful(PLAIN));
    f.session.abort();
    f.forget();
    f.begin();
    assertTrue(f.session.prefetcher.isUseful(PLAIN));
  }
}
