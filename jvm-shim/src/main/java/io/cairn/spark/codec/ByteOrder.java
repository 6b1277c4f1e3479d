package io.cairn.spark.codec;

import java.util.Arrays;

/** Bounds of ranges over keys in unsigned byte order. */
public final class ByteOrder {
  private ByteOrder() {}

  /** The least key that is above every key with the prefix; null if there is none. */
  public static byte[] successor(byte[] prefix) {
    int last = prefix.length - 1;
    while (last >= 0 && prefix[last] == (byte) 0xFF) {
      last--;
    }
    if (last < 0) {
      return null;
    }
    byte[] next = Arrays.copyOf(prefix, last + 1);
    next[last]++;
    return next;
  }
}
