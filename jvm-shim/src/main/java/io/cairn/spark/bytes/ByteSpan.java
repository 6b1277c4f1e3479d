package io.cairn.spark.bytes;

/**
 * A region of bytes as {@code Platform} addresses it: an array (or null for memory off the heap),
 * an offset and a length.
 *
 * <p>Mutable, so that callers reuse one object for many rows. A span owns no bytes: whoever hands
 * one out says how long its bytes stay valid.
 */
public final class ByteSpan {
  public Object base;
  public long offset;
  public int length;

  public ByteSpan() {}

  /** A span over a whole array. */
  public ByteSpan(byte[] array) {
    set(array);
  }

  public void set(Object newBase, long newOffset, int newLength) {
    base = newBase;
    offset = newOffset;
    length = newLength;
  }

  /** Covers a whole array. */
  public void set(byte[] array) {
    set(array, Bytes.ARRAY, array.length);
  }

  /** Copies the bytes into an array of their own. */
  public byte[] toArray() {
    return Bytes.toArray(base, offset, length);
  }
}
