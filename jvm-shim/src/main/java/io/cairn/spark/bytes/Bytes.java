package io.cairn.spark.bytes;

import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** Hash, equality, order and copies of spans. */
public final class Bytes {
  /** Offset of the first byte of an array. */
  public static final long ARRAY = Platform.BYTE_ARRAY_OFFSET;

  private static final boolean LITTLE = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
  private static final int SEED = 42;

  /** Up to this length a copy is a few moves of words. */
  private static final int MAX_SHORT = 64;

  private Bytes() {}

  public static int hash(ByteSpan span) {
    return Murmur3_x86_32.hashUnsafeBytes(span.base, span.offset, span.length, SEED);
  }

  /** Whether two regions of the same length are equal. */
  public static boolean equal(byte[] array, long at, Object base, long offset, int length) {
    if (length < 8) {
      for (int i = 0; i < length; i++) {
        if (Platform.getByte(array, at + i) != Platform.getByte(base, offset + i)) {
          return false;
        }
      }
      return true;
    }
    int last = length - 8;
    for (int i = 0; i < last; i += 8) {
      if (Platform.getLong(array, at + i) != Platform.getLong(base, offset + i)) {
        return false;
      }
    }
    return Platform.getLong(array, at + last) == Platform.getLong(base, offset + last);
  }

  public static int compare(ByteSpan a, ByteSpan b) {
    return compare(a.base, a.offset, a.length, b.base, b.offset, b.length);
  }

  /** Compares by unsigned bytes; a prefix sorts before every longer key. */
  public static int compare(
      Object a, long aOffset, int aLength, Object b, long bOffset, int bLength) {
    int shared = Math.min(aLength, bLength);
    int i = 0;
    for (; i + 8 <= shared; i += 8) {
      long x = Platform.getLong(a, aOffset + i);
      long y = Platform.getLong(b, bOffset + i);
      if (x != y) {
        return LITTLE
            ? Long.compareUnsigned(Long.reverseBytes(x), Long.reverseBytes(y))
            : Long.compareUnsigned(x, y);
      }
    }
    for (; i < shared; i++) {
      int x = Platform.getByte(a, aOffset + i) & 0xff;
      int y = Platform.getByte(b, bOffset + i) & 0xff;
      if (x != y) {
        return x - y;
      }
    }
    return aLength - bLength;
  }

  /** Concatenates two regions in a new array. */
  public static byte[] join(ByteSpan a, ByteSpan b) {
    byte[] joined = new byte[Math.addExact(a.length, b.length)];
    copy(a, joined, ARRAY);
    copy(b, joined, ARRAY + a.length);
    return joined;
  }

  public static void copy(ByteSpan from, byte[] to, long toOffset) {
    copy(from.base, from.offset, to, toOffset, from.length);
  }

  /**
   * Copies a region to an array: a short one word by word, which is faster than a bulk copy. The
   * regions may overlap.
   */
  public static void copy(Object from, long fromOffset, byte[] to, long toOffset, int length) {
    if (length < 8 || length > MAX_SHORT || from == to) {
      copyLong(from, fromOffset, to, toOffset, length);
      return;
    }
    int last = length - 8;
    for (int i = 0; i < last; i += 8) {
      Platform.putLong(to, toOffset + i, Platform.getLong(from, fromOffset + i));
    }
    Platform.putLong(to, toOffset + last, Platform.getLong(from, fromOffset + last));
  }

  private static void copyLong(Object from, long fromOffset, byte[] to, long toOffset, int length) {
    if (from instanceof byte[] array) {
      System.arraycopy(array, (int) (fromOffset - ARRAY), to, (int) (toOffset - ARRAY), length);
    } else {
      Platform.copyMemory(from, fromOffset, to, toOffset, length);
    }
  }

  /** Writes a number of 32 bits, little-endian. */
  public static void putLittleInt(byte[] to, long toOffset, int value) {
    Platform.putInt(to, toOffset, LITTLE ? value : Integer.reverseBytes(value));
  }

  /** Reads a number of 32 bits, little-endian. */
  public static int getLittleInt(byte[] from, long fromOffset) {
    int value = Platform.getInt(from, fromOffset);
    return LITTLE ? value : Integer.reverseBytes(value);
  }

  /** Reads a number of 32 bits, big-endian. */
  public static int getBigInt(Object from, long fromOffset) {
    int value = Platform.getInt(from, fromOffset);
    return LITTLE ? Integer.reverseBytes(value) : value;
  }

  /** The least key above every key with the prefix; null if there is none. */
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
