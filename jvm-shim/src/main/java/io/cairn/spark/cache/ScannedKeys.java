package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;

/**
 * The last committed rows that a scan has returned. Operators that remove old rows do so behind
 * their scan, so a commit need not look up whether these rows exist.
 */
final class ScannedKeys {
  /**
   * Spark's joins of format 4 read two rows further before they remove a row. One more is kept, so
   * that this does not depend on when exactly they ask for the next row.
   */
  static final int MAX_ROWS_BACK = 4;

  private final ByteSpan[] keys = new ByteSpan[MAX_ROWS_BACK];
  private CachedFamily family;
  private int newest;

  ScannedKeys() {
    for (int i = 0; i < keys.length; i++) {
      keys[i] = new ByteSpan();
    }
  }

  /**
   * Notes a row that the engine has found committed. The span's bytes must not change until {@link
   * #forget}.
   */
  void note(CachedFamily of, ByteSpan key) {
    if (of != family) {
      forget();
      family = of;
    }
    newest = (newest + 1) % keys.length;
    keys[newest].set(key);
  }

  /** Whether one of the rows has this key. */
  boolean has(CachedFamily of, ByteSpan key) {
    if (of != family) {
      return false;
    }
    for (ByteSpan scanned : keys) {
      // An unused place has no bytes: it is not the empty key.
      if (scanned.base != null
          && scanned.length == key.length
          && Bytes.compare(scanned, key) == 0) {
        return true;
      }
    }
    return false;
  }

  void forget() {
    family = null;
    for (ByteSpan key : keys) {
      key.clear();
    }
  }
}
