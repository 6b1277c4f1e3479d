package io.cairn.spark.cache;

import static org.junit.jupiter.api.Assertions.assertNull;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.cache.memory.MemoryPool;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import java.util.function.BooleanSupplier;

/** A store, its engine and its open session. */
final class CacheFixture {
  static final int PLAIN = 0;
  static final int ORDERED = 1;
  static final int LISTS = 2;

  final MapEngine engine = new MapEngine(new Random(7));
  final StateCache cache;
  CacheSession session;

  CacheFixture(MemoryPool pool) {
    cache = new StateCache(pool);
    cache.reset(0, "v0", true);
    define();
  }

  CacheFixture(long poolBytes) {
    this(new MemoryPool(poolBytes));
  }

  void define() {
    cache.defineFamily(PLAIN, false, false);
    cache.defineFamily(ORDERED, true, false);
    cache.defineFamily(LISTS, false, true);
  }

  CacheSession begin() {
    engine.begin(cache.version());
    session = cache.begin(engine);
    return session;
  }

  void commit() {
    session.sendWrites();
    engine.commit();
    session.commit(engine.newest(), "v" + engine.newest());
  }

  /** Reads the rows that the cache lacks, until it has all or {@code stops} is true. */
  void refillUntil(BooleanSupplier stops) {
    refillUntil(cache, stops);
  }

  static void refillUntil(StateCache cache, BooleanSupplier stops) {
    cache.committed.refills.run(List.copyOf(cache.committed.families.all()), stops);
  }

  /** Empties the cache, as on another executor. */
  void forget() {
    cache.reset(engine.newest(), "v" + engine.newest(), false);
    define();
  }

  /** Commits, and begins a session on another executor. */
  void commitAndBeginElsewhere() {
    commit();
    forget();
    begin();
  }

  void put(int family, String key, String value) {
    session.put(family, span(key), span(value), false);
  }

  void append(String key, String value) {
    session.append(LISTS, span(key), span(value));
  }

  void remove(int family, String key) {
    session.remove(family, span(key));
  }

  String get(int family, String key) {
    ByteSpan out = new ByteSpan();
    return session.get(family, span(key), out) ? text(out) : null;
  }

  /** Commits rows {@code k0}, {@code k1} and so on, and begins a session on another executor. */
  void commitRowsAndBeginElsewhere(int count, String value) {
    begin();
    for (int i = 0; i < count; i++) {
      put(PLAIN, "k" + i, value);
    }
    commitAndBeginElsewhere();
  }

  /** Writes other keys until all earlier writes are spilled. */
  void fillUntilSpilled() {
    int i = 0;
    long before = session.spillCount();
    while (session.spillCount() == before) {
      put(PLAIN, "fill" + i++, "x".repeat(100));
    }
  }

  boolean isComplete(int family) {
    return isComplete(cache, family);
  }

  /** Cached rows of the family; all its rows if it is complete. */
  long entries(int family) {
    return entries(cache, family);
  }

  static boolean isComplete(StateCache cache, int family) {
    return cache.committed.families.get(family).isComplete;
  }

  static long entries(StateCache cache, int family) {
    return cache.committed.families.get(family).presentCount();
  }

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static ByteSpan span(String text) {
    return new ByteSpan(bytes(text));
  }

  static String text(ByteSpan span) {
    return new String(span.toArray(), StandardCharsets.UTF_8);
  }

  static TreeMap<String, String> rows(RowCursor cursor) {
    TreeMap<String, String> rows = new TreeMap<>();
    while (cursor.next()) {
      String key = text(cursor.key);
      assertNull(rows.put(key, text(cursor.value)), "twice: " + key);
    }
    return rows;
  }
}
