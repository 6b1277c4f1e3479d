package io.cairn.spark.cache;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * A scan that stays open during writes. In order of the keys it has the state at which it was
 * opened, otherwise any of the states that its keys have had since.
 */
final class ModelScan {
  final RowCursor cursor;
  final int family;
  final boolean inOrder;
  final TreeMap<byte[], List<byte[]>> states = new TreeMap<>(MapEngine.UNSIGNED);
  final Set<byte[]> seen = new TreeSet<>(MapEngine.UNSIGNED);
  final byte[] from;
  final byte[] to;
  byte[] last;

  ModelScan(
      RowCursor cursor,
      int family,
      boolean inOrder,
      byte[] from,
      byte[] to,
      Map<byte[], byte[]> now) {
    this.cursor = cursor;
    this.family = family;
    this.inOrder = inOrder;
    this.from = from;
    this.to = to;
    now.forEach((key, value) -> states.put(key, new ArrayList<>(List.of(value))));
  }

  boolean inRange(byte[] key) {
    return (from == null || MapEngine.UNSIGNED.compare(key, from) >= 0)
        && (to == null || MapEngine.UNSIGNED.compare(key, to) < 0);
  }

  void note(byte[] key, byte[] before, byte[] after) {
    if (inOrder) {
      return;
    }
    states.computeIfAbsent(key, k -> new ArrayList<>(Arrays.asList(before))).add(after);
  }

  /** Reads one row and checks it. False: the end. */
  boolean step() {
    if (!cursor.next()) {
      states.forEach(
          (key, values) -> {
            if (inRange(key) && !values.contains(null) && !seen.contains(key)) {
              fail("a row is missing: " + Arrays.toString(key) + " of family " + family);
            }
          });
      assertFalse(cursor.next());
      return false;
    }
    byte[] key = cursor.key.toArray();
    byte[] value = cursor.value.toArray();
    assertTrue(inRange(key), "outside the range");
    assertTrue(seen.add(key), "twice: " + Arrays.toString(key));
    if (inOrder) {
      assertTrue(last == null || MapEngine.UNSIGNED.compare(last, key) < 0, "not ascending");
    }
    last = key;
    List<byte[]> allowed = states.get(key);
    assertTrue(
        allowed != null && allowed.stream().anyMatch(v -> Arrays.equals(v, value)),
        "a value that the key never had");
    return true;
  }
}
