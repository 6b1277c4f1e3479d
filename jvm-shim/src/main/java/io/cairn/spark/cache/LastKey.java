package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;

/**
 * The result of a search of a write buffer. After a read its key is remembered: a write of the same
 * key then neither hashes nor searches it.
 *
 * <p>INVARIANT: while {@link #is} returns true, address and presence are those of the key.
 */
final class LastKey {
  /** Value of {@link #presence} if the committed cache was not searched. */
  static final byte NOT_SEARCHED = -1;

  int hash;

  /** Address of the key's write; 0: there is none. */
  int address;

  /** Whether the key is committed, as a write block numbers it. */
  byte presence;

  /** Null: no key is remembered. */
  private CachedFamily family;

  private byte[] bytes = new byte[64];
  private int length;

  /** Whether the result is that of this key. */
  boolean is(CachedFamily ofFamily, ByteSpan key) {
    return family == ofFamily
        && length == key.length
        && Bytes.equal(bytes, Bytes.ARRAY, key.base, key.offset, length);
  }

  void remember(CachedFamily ofFamily, ByteSpan key) {
    if (key.length > bytes.length) {
      bytes = new byte[2 * key.length];
    }
    Bytes.copy(key, bytes, Bytes.ARRAY);
    length = key.length;
    family = ofFamily;
  }

  /** REQUIRES: before addresses become invalid. */
  void forget() {
    family = null;
  }
}
