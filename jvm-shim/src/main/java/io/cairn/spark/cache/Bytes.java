package io.cairn.spark.cache;

import java.nio.ByteOrder;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** Hash, equality and order of byte regions. */
final class Bytes {
  static final long ARRAY = Platform.BYTE_ARRAY_OFFSET;

  private static final boolean LITTLE = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
  private static final int SEED = 42;

  private Bytes() {}

  static int hash(Object base, long offset, int length) {
    return Murmur3_x86_32.hashUnsafeBytes(base, offset, length, SEED);
  }

  static boolean equal(Object a, long aOffset, Object b, long bOffset, int length) {
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

  /** Order by unsigned bytes, a prefix before what it begins. */
  static int compare(Object a, long aOffset, int aLength, Object b, long bOffset, int bLength) {
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

  static byte[] copy(Object base, long offset, int length) {
    byte[] copy = new byte[length];
    Platform.copyMemory(base, offset, copy, ARRAY, length);
    return copy;
  }

  /** Two regions one after the other, in an array of their own. */
  static byte[] join(Object a, long aOffset, int aLength, Object b, long bOffset, int bLength) {
    byte[] joined = new byte[Math.addExact(aLength, bLength)];
    Platform.copyMemory(a, aOffset, joined, ARRAY, aLength);
    Platform.copyMemory(b, bOffset, joined, ARRAY + aLength, bLength);
    return joined;
  }
}
