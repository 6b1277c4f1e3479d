package io.cairn.spark.bytes;

import java.util.Arrays;
import org.apache.spark.unsafe.Platform;

/**
 * A region of bytes as {@code Platform} addresses it: an array (or null for memory off the heap),
 * an offset and a length.
 *
 * <p>Mutable, so that callers reuse one object for many rows. A span owns no bytes: the method that
 * returns it says how long its bytes stay valid.
 */
public final class ByteSpan {
  public Object base;
  public long offset;
  public int length;

  public ByteSpan() {}

  /** Covers a whole array. */
  public ByteSpan(byte[] array) {
    set(array);
  }

  public void set(Object newBase, long newOffset, int newLength) {
    if (base != newBase) {
      // Skipping the assignment saves the garbage collector's barrier: scans often stay in one
      // array.
      base = newBase;
    }
    offset = newOffset;
    length = newLength;
  }

  /** Covers a whole array. */
  public void set(byte[] array) {
    set(array, Platform.BYTE_ARRAY_OFFSET, array.length);
  }

  /** Covers the bytes that another span covers now. */
  public void set(ByteSpan other) {
    set(other.base, other.offset, other.length);
  }

  /** Covers nothing, so that the array it covered can be freed. */
  public void clear() {
    set(null, 0, 0);
  }

  /** Copies the bytes into an array of their own. */
  public byte[] toArray() {
    if (base instanceof byte[] array) {
      int from = (int) (offset - Platform.BYTE_ARRAY_OFFSET);
      return Arrays.copyOfRange(array, from, from + length);
    }
    byte[] copy = new byte[length];
    Platform.copyMemory(base, offset, copy, Platform.BYTE_ARRAY_OFFSET, length);
    return copy;
  }
}
