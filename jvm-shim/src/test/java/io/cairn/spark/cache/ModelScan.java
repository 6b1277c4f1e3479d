package io.cairn.spark.cache;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;

/** A scan that stays open during writes, and the rows that it must return: those of its opening. */
final class ModelScan {
  final RowCursor cursor;
  private final int family;
  private final boolean inOrder;
  private final TreeMap<byte[], byte[]> left = new TreeMap<>(MapEngine.UNSIGNED);
  private int seenCount;

  /**
   * @param rows of the family, at the moment of the opening
   */
  ModelScan(
      RowCursor cursor,
      int family,
      boolean inOrder,
      byte[] from,
      byte[] to,
      Map<byte[], byte[]> rows) {
    this.cursor = cursor;
    this.family = family;
    this.inOrder = inOrder;
    rows.forEach(
        (key, value) -> {
          boolean isBefore = from != null && MapEngine.UNSIGNED.compare(key, from) < 0;
          boolean isBehind = to != null && MapEngine.UNSIGNED.compare(key, to) >= 0;
          if (!isBefore && !isBehind) {
            left.put(key, value);
          }
        });
  }

  int seenCount() {
    return seenCount;
  }

  /** Reads one row and checks it. False: the end. */
  boolean step() {
    if (!cursor.next()) {
      assertEquals(0, left.size(), "rows of family " + family + " are missing");
      assertFalse(cursor.next());
      return false;
    }
    byte[] key = cursor.key.toArray();
    if (inOrder && !left.isEmpty()) {
      assertArrayEquals(left.firstKey(), key, "not the next key of family " + family);
    }
    byte[] expected = left.remove(key);
    assertNotNull(expected, "twice, or not at the opening: " + Arrays.toString(key) + named());
    assertArrayEquals(expected, cursor.value.toArray(), "not as at the opening" + named());
    seenCount++;
    return true;
  }

  private String named() {
    return " in family " + family + (inOrder ? ", in order" : "");
  }

  void readToEnd() {
    while (step()) {
      continue;
    }
  }
}
