package io.cairn.spark.cache;

import static io.cairn.spark.cache.CacheFixture.LISTS;
import static io.cairn.spark.cache.CacheFixture.ORDERED;
import static io.cairn.spark.cache.CacheFixture.PLAIN;
import static io.cairn.spark.cache.CacheFixture.bytes;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** What the kept replies cover, and what spills make outdated in them. */
class AnswersTest {
  private final CacheFixture f = new CacheFixture(64 << 10);

  /** Commits keys with the value "one", and begins a session on another executor. */
  private void commitElsewhere(int family, String... keys) {
    f.begin();
    for (String key : keys) {
      f.put(family, key, "one");
    }
    f.commitAndBeginElsewhere();
  }

  private Answers answers() {
    return f.cache.committed.answers;
  }

  private CachedFamily family(int id) {
    return f.cache.committed.families.get(id);
  }

  /** Keeps the page of at most so many rows from a key on. */
  private void readPage(int family, String from, int rows) {
    RowPage page =
        f.engine.scan(new ScanRequest(family, bytes(from), true, null, rows, 1 << 20), 1);
    answers().add(new Answer.Page(family(family), bytes(from), page), page);
  }

  /** The row of a key, "absent", or "unknown". */
  private String found(int family, String key) {
    Answer.Rows rows = answers().find(family(family), new ByteSpan(bytes(key)));
    if (rows == null) {
      return "unknown";
    }
    ByteSpan value = new ByteSpan();
    if (rows.first() < rows.end()) {
      rows.page().value(rows.first(), value);
    }
    return rows.first() < rows.end() ? CacheFixture.text(value) : "absent";
  }

  /** The keys from here to the page's end are known, absent ones too, and no other. */
  @Test
  void aPageCoversTheKeysFromItsStartToItsLastRow() {
    commitElsewhere(PLAIN, "b", "d", "f");

    readPage(PLAIN, "b", 1);

    assertEquals("unknown", found(PLAIN, "a"));
    assertEquals("one", found(PLAIN, "b"));
    assertEquals("unknown", found(PLAIN, "b0"));
    readPage(PLAIN, "c", 1);
    assertEquals("unknown", found(PLAIN, "bz"));
    assertEquals("absent", found(PLAIN, "c"));
    assertEquals("absent", found(PLAIN, "c0"));
    assertEquals("one", found(PLAIN, "d"));
    assertEquals("unknown", found(PLAIN, "d0"));
  }

  @Test
  void aLastPageKnowsAllKeysAboveItsRows() {
    commitElsewhere(PLAIN, "b");

    readPage(PLAIN, "c", 64);

    assertEquals("unknown", found(PLAIN, "b"));
    assertEquals("absent", found(PLAIN, "c"));
    assertEquals("absent", found(PLAIN, "zzz"));
    f.put(PLAIN, "x", "new");
    f.fillUntilSpilled();
    assertEquals("unknown", found(PLAIN, "x"));
    assertEquals("new", f.get(PLAIN, "x"));
  }

  /** Each of two spills makes its keys outdated, with the absent ones of the same part. */
  @Test
  void ofAPageTheRowsOfSpilledKeysAloneAreOutdated() {
    commitElsewhere(PLAIN, "b", "d", "f", "h");
    readPage(PLAIN, "a", 4);
    f.put(PLAIN, "d", "two");
    f.fillUntilSpilled();
    f.put(PLAIN, "g", "new");
    f.remove(PLAIN, "b");
    f.fillUntilSpilled();

    assertEquals("unknown", found(PLAIN, "b"));
    assertEquals("unknown", found(PLAIN, "c"));
    assertEquals("unknown", found(PLAIN, "d"));
    assertEquals("absent", found(PLAIN, "e"));
    assertEquals("one", found(PLAIN, "f"));
    assertEquals("unknown", found(PLAIN, "g"));
    assertEquals("two", f.get(PLAIN, "d"));
    assertEquals("new", f.get(PLAIN, "g"));
    assertNull(f.get(PLAIN, "b"));
    assertEquals("one", f.get(PLAIN, "h"));
  }

  /** The end of a range is exclusive, its start inclusive; a reply may lack the last ranges. */
  @Test
  void aRangeCoversItsStartAndNotItsEnd() {
    commitElsewhere(ORDERED, "a", "b1", "b2", "c");
    request(ORDERED, "b");

    assertEquals("unknown", found(ORDERED, "a"));
    assertEquals("absent", found(ORDERED, "b"));
    assertEquals("one", found(ORDERED, "b1"));
    assertEquals("absent", found(ORDERED, "bz"));
    assertEquals("unknown", found(ORDERED, "c"));
    assertTrue(answers().has(family(ORDERED), bytes("b"), bytes("c")));
    assertTrue(answers().has(family(ORDERED), bytes("b1"), bytes("b2")));
    assertTrue(answers().has(family(ORDERED), bytes("b2"), bytes("b1")), "it has no rows");
    assertFalse(answers().has(family(ORDERED), bytes("b"), bytes("c0")));
    assertFalse(answers().has(family(ORDERED), bytes("b"), null));
    assertFalse(answers().has(family(ORDERED), null, bytes("c")));
  }

  private void request(int family, String... prefixes) {
    byte[][] keys = new byte[prefixes.length][];
    for (int i = 0; i < keys.length; i++) {
      keys[i] = bytes(prefixes[i]);
    }
    f.session.prefetcher.startPrefixes(family, keys, keys.length).finish();
  }

  /** A key that the next range begins with is not within this one. */
  @Test
  void aSpillMakesTheRangesWithItsKeysOutdatedAndNoOther() {
    commitElsewhere(ORDERED, "a1", "b1", "c1");
    request(ORDERED, "a", "b", "c");
    f.put(ORDERED, "b", "new");
    f.fillUntilSpilled();
    f.remove(ORDERED, "c1");
    f.fillUntilSpilled();

    assertEquals("one", found(ORDERED, "a1"));
    assertEquals("unknown", found(ORDERED, "b1"));
    assertEquals("unknown", found(ORDERED, "c1"));
    assertFalse(answers().has(family(ORDERED), bytes("b"), bytes("c")));
    byte[] from = bytes("b");
    var rows = CacheFixture.rows(f.session.range(ORDERED, from, Bytes.successor(from)));
    assertEquals(Map.of("b", "new", "b1", "one"), rows);
    assertNull(f.get(ORDERED, "c1"));
  }

  /** The reply to keys is on its way during two spills; then it is kept, and a third comes. */
  @Test
  void aReplyIsOutdatedByEachSpillSinceItsRequest() {
    commitElsewhere(PLAIN, "a", "b", "c", "d");
    f.put(PLAIN, "d", "two");
    f.fillUntilSpilled();
    byte[][] keys = {bytes("a"), bytes("b"), bytes("c"), bytes("d")};
    Prefetcher.Request request = f.session.prefetcher.start(PLAIN, keys, keys.length);
    f.put(PLAIN, "a", "two");
    f.fillUntilSpilled();
    f.remove(PLAIN, "b");
    f.fillUntilSpilled();

    request.finish();

    assertEquals("unknown", found(PLAIN, "a"));
    assertEquals("unknown", found(PLAIN, "b"));
    assertEquals("one", found(PLAIN, "c"));
    assertEquals("two", found(PLAIN, "d"));
    assertEquals("two", f.get(PLAIN, "a"));
    assertNull(f.get(PLAIN, "b"));
    f.put(PLAIN, "d", "three");
    f.fillUntilSpilled();
    assertEquals("unknown", found(PLAIN, "d"));
    assertEquals("three", f.get(PLAIN, "d"));
  }

  /** The same key in another family is another row. */
  @Test
  void aSpillOfOneFamilyLeavesTheAnswersOfAnother() {
    f.begin();
    f.put(ORDERED, "k", "one");
    f.append("k", "one");
    f.commitAndBeginElsewhere();
    request(ORDERED, "k");
    f.append("k", "two");
    f.fillUntilSpilled();

    assertEquals("one", found(ORDERED, "k"));
    assertEquals("onetwo", f.get(LISTS, "k"));
  }

  /** A scan that is open reads what a spill would hide, in the middle of the spill. */
  @Test
  void whatAScanReadsBeforeASpillIsOutdatedByIt() {
    f.begin();
    for (int i = 0; i < 400; i++) {
      f.put(ORDERED, String.format("k%03d", i), "one");
    }
    f.commitAndBeginElsewhere();
    RowCursor scan = f.session.range(ORDERED, null, null);
    assertTrue(scan.next());
    for (int i = 0; i < 20; i++) {
      f.get(ORDERED, String.format("k%03d", i));
    }
    for (int i = 30; i < 400; i++) {
      f.put(ORDERED, String.format("k%03d", i), "two");
    }
    f.fillUntilSpilled();

    // The last of them was read last.
    for (int i = 399; i >= 30; i--) {
      assertEquals("two", f.get(ORDERED, String.format("k%03d", i)));
    }
    int rows = 1;
    while (scan.next()) {
      assertEquals("one", CacheFixture.text(scan.value), CacheFixture.text(scan.key));
      rows++;
    }
    assertEquals(400, rows);
  }

  /** No bound counts them, so they must be few. */
  @Test
  void ofManyRepliesTheLastAreKept() {
    commitElsewhere(ORDERED, "a", "b", "c", "d", "e");

    for (String prefix : new String[] {"a", "b", "c", "d", "e"}) {
      request(ORDERED, prefix);
    }

    assertEquals("unknown", found(ORDERED, "a"));
    assertEquals("one", found(ORDERED, "b"));
    assertEquals("one", found(ORDERED, "e"));
  }

  /** The ids of families are used again by other stores' sessions, and their rows are not. */
  @Test
  void aFamilyThatIsDroppedAndCreatedAgainHasNoneOfItsRows() {
    commitElsewhere(ORDERED, "a1");
    request(ORDERED, "a");
    byte[][] keys = {bytes("a1")};
    Prefetcher.Request late = f.session.prefetcher.start(ORDERED, keys, 1);
    assertEquals("one", found(ORDERED, "a1"));

    f.session.dropFamily(ORDERED);
    f.commit();
    f.begin();
    f.session.createFamily(ORDERED, true, false);
    late.finish();

    assertEquals("unknown", found(ORDERED, "a1"));
    assertNull(f.get(ORDERED, "a1"));
    assertEquals(Map.of(), CacheFixture.rows(f.session.range(ORDERED, null, null)));
  }

  /** A session of the next version must not read the rows of this one. */
  @Test
  void theAnswersEndWithTheirSession() {
    commitElsewhere(ORDERED, "a1");
    request(ORDERED, "a");
    f.put(ORDERED, "a1", "two");
    f.commitAndBeginElsewhere();

    assertEquals("unknown", found(ORDERED, "a1"));
    assertEquals("two", f.get(ORDERED, "a1"));
  }
}
