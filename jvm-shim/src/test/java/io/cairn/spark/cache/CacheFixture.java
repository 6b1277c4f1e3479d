package io.cairn.spark.tier;

import static org.junit.jupiter.api.Assertions.assertNull;

import java.nio.charset.StandardCharsets;
import java.util.Random;
import java.util.TreeMap;

/** A store, its engine and its open session. */
final class TierFixture {
  static final int PLAIN = 0;
  static final int ORDERED = 1;
  static final int LISTS = 2;

  final MapEngine engine = new MapEngine(new Random(7));
  final StoreTier tier;
  TierSession session;

  TierFixture(TierBudget budget) {
    tier = new StoreTier(budget);
    tier.reset(0, "v0", true);
    define();
  }

  TierFixture(long budgetBytes) {
    this(new TierBudget(budgetBytes));
  }

  void define() {
    tier.defineFamily(PLAIN, false, false);
    tier.defineFamily(ORDERED, true, false);
    tier.defineFamily(LISTS, false, true);
  }

  TierSession begin() {
    engine.begin(tier.stampVersion());
    session = tier.begin(engine);
    return session;
  }

  void commit() {
    session.finishWrites();
    engine.commit();
    session.commit(engine.newest(), "v" + engine.newest());
  }

  /** As a provider on another executor: nothing in the base. */
  void forget() {
    tier.reset(engine.newest(), "v" + engine.newest(), false);
    define();
  }

  void put(int family, String key, String value) {
    byte[] k = bytes(key);
    byte[] v = bytes(value);
    session.put(family, k, Regions.ARRAY, k.length, v, Regions.ARRAY, v.length, false);
  }

  void append(String key, String value) {
    byte[] k = bytes(key);
    byte[] v = bytes(value);
    session.append(LISTS, k, Regions.ARRAY, k.length, v, Regions.ARRAY, v.length);
  }

  void remove(int family, String key) {
    byte[] k = bytes(key);
    session.remove(family, k, Regions.ARRAY, k.length);
  }

  String get(int family, String key) {
    byte[] k = bytes(key);
    ValueRef out = new ValueRef();
    return session.get(family, k, Regions.ARRAY, k.length, out)
        ? text(out.base, out.offset, out.length)
        : null;
  }

  /** Writes enough other keys that what was written before is with the engine. */
  void fillUntilSpilled() {
    int i = 0;
    long before = tier.spills;
    while (tier.spills == before) {
      put(PLAIN, "fill" + i++, "x".repeat(100));
    }
  }

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static String text(Object base, long offset, int length) {
    return new String(Regions.copy(base, offset, length), StandardCharsets.UTF_8);
  }

  static TreeMap<String, String> rows(TierCursor cursor) {
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
