package io.cairn.spark.protocol;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import java.util.Arrays;

/**
 * Offsets and data of a growing binary column, as Arrow has them.
 *
 * <p>Both arrays have at least 8 bytes after their content, for its padding.
 */
final class BinaryColumn {
  private static final int FIRST_BYTES = 64 << 10;
  private static final int PADDING = 8;

  /** Little-endian numbers of 32 bits: the first is 0, then the end of each value. */
  final byte[] offsets;

  byte[] data = new byte[FIRST_BYTES];
  int dataBytes;
  private final int keptBytes;

  /**
   * @param keptBytes an array that grew beyond this is freed by {@link #clear}
   */
  BinaryColumn(int maxRows, int keptBytes) {
    offsets = new byte[4 * (maxRows + 1) + PADDING];
    this.keptBytes = keptBytes;
  }

  /** Sets the next row; one of length -1 has no bytes. */
  void add(int row, ByteSpan bytes) {
    int length = bytes.length;
    if (length > 0) {
      reserve(length);
      Bytes.copy(bytes, data, Bytes.ARRAY + dataBytes);
      dataBytes += length;
    }
    Bytes.putLittleInt(offsets, Bytes.ARRAY + 4L * (row + 1), dataBytes);
  }

  private void reserve(int more) {
    long needed = (long) dataBytes + more + PADDING;
    if (needed > data.length) {
      byte[] grown = new byte[(int) Math.max(needed, Math.min(2L * data.length, keptBytes))];
      System.arraycopy(data, 0, grown, 0, dataBytes);
      data = grown;
    }
  }

  /** A copy of a value. */
  byte[] copy(int row) {
    return Arrays.copyOfRange(data, end(row), end(row + 1));
  }

  private int end(int row) {
    return Bytes.getLittleInt(offsets, Bytes.ARRAY + 4L * row);
  }

  void clear() {
    dataBytes = 0;
    if (data.length > keptBytes) {
      data = new byte[FIRST_BYTES];
    }
  }
}
