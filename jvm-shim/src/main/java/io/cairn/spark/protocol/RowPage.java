package io.cairn.spark.protocol;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import java.util.Arrays;

/**
 * A page of rows from the engine, as regions of one byte array.
 *
 * <p>The key of row i is {@code data[keyOffset[i] .. +keyLength[i])}, its value likewise; a value
 * length of -1 means that there is no value. The arrays may be longer than {@code count}.
 */
public final class RowPage {
  /** Origins of a row, as on the data channel. DO NOT RENUMBER. */
  public static final byte ABSENT = 0;

  public static final byte COMMITTED = 1;
  public static final byte SPILL = 2;
  public static final byte SPILL_DELETED = 3;

  private static final int VALUE_PADDING = 7;

  public int count;
  public byte[] data = new byte[0];
  public int[] keyOffset = new int[0];
  public int[] keyLength = new int[0];
  public int[] valueOffset = new int[0];
  public int[] valueLength = new int[0];
  public byte[] origin = new byte[0];

  /** Whether more rows of the request follow after the last row. */
  public boolean more;

  /**
   * Makes the arrays long enough for rows and bytes; keys are empty, other content is undefined.
   */
  public void reset(int rows, int bytes) {
    count = rows;
    more = false;
    if (data.length < bytes) {
      data = new byte[bytes];
    }
    if (origin.length < rows) {
      int length = Math.max(16, Integer.highestOneBit(rows) << 1);
      keyOffset = new int[length];
      keyLength = new int[length];
      valueOffset = new int[length];
      valueLength = new int[length];
      origin = new byte[length];
    } else {
      Arrays.fill(keyLength, 0, rows, 0);
    }
  }

  /** Makes the page empty and frees its arrays. Spans and rows that use them stay valid. */
  public void release() {
    count = 0;
    more = false;
    data = new byte[0];
    keyOffset = new int[0];
    keyLength = new int[0];
    valueOffset = new int[0];
    valueLength = new int[0];
    origin = new byte[0];
  }

  /** Sets a span to the key of a row. */
  public void key(int row, ByteSpan into) {
    into.set(data, Bytes.ARRAY + keyOffset[row], keyLength[row]);
  }

  /** Returns a copy of the key of a row. */
  public byte[] keyBytes(int row) {
    return Arrays.copyOfRange(data, keyOffset[row], keyOffset[row] + keyLength[row]);
  }

  /** Sets a span to the value of a row that has one. */
  public void value(int row, ByteSpan into) {
    into.set(data, Bytes.ARRAY + valueOffset[row], valueLength[row]);
  }

  /**
   * Returns a copy of the value of a row that has one, after {@link #VALUE_PADDING} bytes: the row
   * after its version byte is then 8-aligned, as in a slab.
   */
  public byte[] paddedValue(int row) {
    byte[] copy = new byte[Math.addExact(valueLength[row], VALUE_PADDING)];
    System.arraycopy(data, valueOffset[row], copy, VALUE_PADDING, valueLength[row]);
    return copy;
  }

  /** Sets a span to the value that {@link #paddedValue} has returned. */
  public static void unpad(byte[] padded, ByteSpan into) {
    into.set(padded, Bytes.ARRAY + VALUE_PADDING, padded.length - VALUE_PADDING);
  }
}
