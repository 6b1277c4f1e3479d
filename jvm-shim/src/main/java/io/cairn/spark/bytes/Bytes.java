package io.cairn.spark.bytes;

import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** Hash, equality, order and copies of byte regions. */
public final class Bytes {
  /** Offset of the first byte of an array. */
  public static final long ARRAY = Platform.BYTE_ARRAY_OFFSET;

  private static final boolean LITTLE = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
  private static final int SEED = 42;

  private Bytes() {}

  public static int hash(Object base, long offset, int length) {
    return Murmur3_x86_32.hashUnsafeBytes(base, offset, length, SEED);
  }

  public static boolean equal(Object a, long aOffset, Object b, long bOffset, int length) {
    if (length < 8) {
      for (int i = 0; i < length; i++) {
        if (Platform.getByte(a, aOffset + i) != Platform.getByte(b, bOffset + i)) {
          return false;
        }
      }
      return true;
    }
    int last = length - 8;
    for (int i = 0; i < last; i += 8) {
      if (Platform.getLong(a, aOffset + i) != Platform.getLong(b, bOffset + i)) {
        return false;
      }
    }
    return Platform.getLong(a, aOffset + last) == Platform.getLong(b, bOffset + last);
  }

  /** Compares by unsigned bytes; a prefix is less than what it begins. */
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

  /** Copies a region into an array of its own. */
  public static byte[] toArray(Object base, long offset, int length) {
    byte[] copy = new byte[length];
    Platform.copyMemory(base, offset, copy, ARRAY, length);
    return copy;
  }

  /** Concatenates two regions in an array of their own. */
  public static byte[] join(
      Object a, long aOffset, int aLength, Object b, long bOffset, int bLength) {
    byte[] joined = new byte[Math.addExact(aLength, bLength)];
    Platform.copyMemory(a, aOffset, joined, ARRAY, aLength);
    Platform.copyMemory(b, bOffset, joined, ARRAY + aLength, bLength);
    return joined;
  }

  /** Copies a short region by words, which costs less than the call of a bulk copy. */
  public static void copy(Object from, long fromOffset, Object to, long toOffset, int length) {
    if (length > 64 || from == to) {
      Platform.copyMemory(from, fromOffset, to, toOffset, length);
      return;
    }
    int i = 0;
    for (; i + 8 <= length; i += 8) {
      Platform.putLong(to, toOffset + i, Platform.getLong(from, fromOffset + i));
    }
    for (; i < length; i++) {
      Platform.putByte(to, toOffset + i, Platform.getByte(from, fromOffset + i));
    }
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
