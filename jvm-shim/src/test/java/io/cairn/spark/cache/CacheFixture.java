package io.cairn.spark.cache;

import static org.junit.jupiter.api.Assertions.assertNull;

import java.nio.charset.StandardCharsets;
import java.util.Random;
import java.util.TreeMap;

/** A store, its engine and its open session. */
final class CacheFixture {
  static final int PLAIN = 0;
  static final int ORDERED = 1;
  static final int LISTS = 2;

  final MapEngine engine = new MapEngine(new Random(7));
  final StateCache cache;
  CacheSession session;

  CacheFixture(MemoryPool budget) {
    cache = new StateCache(budget);
    cache.reset(0, "v0", true);
    define();
  }

  CacheFixture(long budgetBytes) {
    this(new MemoryPool(budgetBytes));
  }

  void define() {
    cache.defineFamily(PLAIN, false, false);
    cache.defineFamily(ORDERED, true, false);
    cache.defineFamily(LISTS, false, true);
  }

  CacheSession begin() {
    engine.begin(cache.stampVersion());
    session = cache.begin(engine);
    return session;
  }

  void commit() {
    session.finishWrites();
    engine.commit();
    session.commit(engine.newest(), "v" + engine.newest());
  }

  /** As a provider on another executor: nothing in the base. */
  void forget() {
    cache.reset(engine.newest(), "v" + engine.newest(), false);
    define();
  }

  void put(int family, String key, String value) {
    byte[] k = bytes(key);
    byte[] v = bytes(value);
    session.put(family, k, Bytes.ARRAY, k.length, v, Bytes.ARRAY, v.length, false);
  }

  void append(String key, String value) {
    byte[] k = bytes(key);
    byte[] v = bytes(value);
    session.append(LISTS, k, Bytes.ARRAY, k.length, v, Bytes.ARRAY, v.length);
  }

  void remove(int family, String key) {
    byte[] k = bytes(key);
    session.remove(family, k, Bytes.ARRAY, k.length);
  }

  String get(int family, String key) {
    byte[] k = bytes(key);
    ValueRef out = new ValueRef();
    return session.get(family, k, Bytes.ARRAY, k.length, out)
        ? text(out.base, out.offset, out.length)
        : null;
  }

  /** Writes enough other keys that what was written before is with the engine. */
  void fillUntilSpilled() {
    int i = 0;
    long before = cache.spills;
    while (cache.spills == before) {
      put(PLAIN, "fill" + i++, "x".repeat(100));
    }
  }

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static String text(Object base, long offset, int length) {
    return new String(Bytes.copy(base, offset, length), StandardCharsets.UTF_8);
  }

  static TreeMap<String, String> rows(RowCursor cursor) {
    TreeMap<String, String> rows = new TreeMap<>();
    while (cursor.next()) {
      String key = text(cursor.keyBase, cursor.keyOffset, cursor.keyLength);
      assertNull(
          rows.put(key, text(cursor.valueBase, cursor.valueOffset, cursor.valueLength)),
          "twice: " + key);
    }
    return rows;
  }
}
