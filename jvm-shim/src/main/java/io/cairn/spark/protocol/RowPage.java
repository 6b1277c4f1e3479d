package io.cairn.spark.protocol;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;

/**
 * A page of rows out of the engine, as regions of one byte array.
 *
 * <p>Row i's key is {@code data[keyOffset[i] .. +keyLength[i])}, its value likewise; a value length
 * of -1 means none. The arrays may be longer than {@code count}. Valid until the source that made
 * it is asked again, unless taken over by {@link #copy}.
 */
public final class RowPage {
  /** Origins of a row, as on the data channel. DO NOT RENUMBER. */
  public static final byte ABSENT = 0;

  public static final byte COMMITTED = 1;
  public static final byte SPILL = 2;
  public static final byte SPILL_DELETED = 3;

  public int count;
  public byte[] data = new byte[0];
  public int[] keyOffset = new int[0];
  public int[] keyLength = new int[0];
  public int[] valueOffset = new int[0];
  public int[] valueLength = new int[0];
  public byte[] origin = new byte[0];

  /** Whether keys of the asked range follow after the last row. */
  public boolean more;

  /** Makes room for rows and bytes; earlier content is lost. */
  public void reset(int rows, int bytes) {
    count = rows;
    more = false;
    if (data.length < bytes) {
      data = new byte[bytes];
    }
    if (origin.length < rows) {
      keyOffset = new int[rows];
      keyLength = new int[rows];
      valueOffset = new int[rows];
      valueLength = new int[rows];
      origin = new byte[rows];
    }
  }

  /** Lets a span cover the key of a row. */
  public void key(int row, ByteSpan into) {
    into.set(data, Bytes.ARRAY + keyOffset[row], keyLength[row]);
  }

  /** Lets a span cover the value of a row that has one. */
  public void value(int row, ByteSpan into) {
    into.set(data, Bytes.ARRAY + valueOffset[row], valueLength[row]);
  }

  /** An own copy that outlives the next request. */
  public RowPage copy() {
    RowPage copy = new RowPage();
    copy.count = count;
    copy.more = more;
    copy.data = data.clone();
    copy.keyOffset = keyOffset.clone();
    copy.keyLength = keyLength.clone();
    copy.valueOffset = valueOffset.clone();
    copy.valueLength = valueLength.clone();
    copy.origin = origin.clone();
    return copy;
  }
}
