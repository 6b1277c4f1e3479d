package io.cairn.spark.protocol;

import io.cairn.spark.bytes.ByteSpan;

/**
 * The rows of one WRITES frame, at most one per key: the columns of the frame, which are sent as
 * they are.
 *
 * <p>A block has at most {@link #MAX_ROWS} rows and about {@link #TARGET_BYTES} bytes, unless one
 * row is larger. It is reused: the source reads it before {@link EngineSource#write} returns.
 */
public final class WriteBlock {
  public static final int MAX_ROWS = 65_536;
  public static final int TARGET_BYTES = 1 << 20;

  /** Bound of a key with its value: a payload, minus 64 KiB for metadata and other columns. */
  public static final int MAX_ROW_BYTES = FrameHeader.MAX_PAYLOAD_BYTES - (64 << 10);

  /** Operations, as in the changelog. DO NOT RENUMBER. */
  public static final byte PUT = 1;

  public static final byte DELETE = 2;
  public static final byte APPEND = 3;
  public static final byte DROP_CF = 4;

  /** Whether the key is committed, as on the data channel. DO NOT RENUMBER. */
  public static final byte UNKNOWN = 0;

  public static final byte PRESENT = 1;
  public static final byte MISSING = 2;

  private static final int PADDING = 8;

  private int count;
  private int nullCount;
  private final byte[] ops = new byte[MAX_ROWS + PADDING];
  private final byte[] presences = new byte[MAX_ROWS + PADDING];

  /** Little-endian numbers of 16 bits. */
  private final byte[] families = new byte[2 * MAX_ROWS + PADDING];

  private final BinaryColumn keys = new BinaryColumn(MAX_ROWS, 2 * TARGET_BYTES);
  private final BinaryColumn values = new BinaryColumn(MAX_ROWS, 2 * TARGET_BYTES);

  /** One bit per row: whether it has a value. */
  private final byte[] validity = new byte[MAX_ROWS / 8 + PADDING];

  public int count() {
    return count;
  }

  /** Whether a row of this size belongs into this block. */
  public boolean hasSpaceFor(long rowBytes) {
    return count < MAX_ROWS && bytes() + rowBytes <= TARGET_BYTES || count == 0;
  }

  /** Bytes of keys and values. */
  public long bytes() {
    return (long) keys.dataBytes + values.dataBytes;
  }

  /**
   * Copies a row into the block. REQUIRES: {@link #hasSpaceFor} its bytes.
   *
   * @param value length -1: no value (DELETE, DROP_CF)
   */
  public void add(byte op, byte presence, int family, ByteSpan key, ByteSpan value) {
    int row = count++;
    ops[row] = op;
    presences[row] = presence;
    families[2 * row] = (byte) family;
    families[2 * row + 1] = (byte) (family >> 8);
    keys.add(row, key);
    values.add(row, value);
    if ((row & 7) == 0) {
      validity[row >> 3] = 0;
    }
    if (value.length < 0) {
      nullCount++;
    } else {
      validity[row >> 3] |= (byte) (1 << (row & 7));
    }
  }

  public byte op(int row) {
    return ops[row];
  }

  public byte presence(int row) {
    return presences[row];
  }

  public int family(int row) {
    return families[2 * row] & 0xff | (families[2 * row + 1] & 0xff) << 8;
  }

  /** A copy of a key. */
  public byte[] key(int row) {
    return keys.copy(row);
  }

  /** A copy of a value; null: the row has none. */
  public byte[] value(int row) {
    return (validity[row >> 3] >> (row & 7) & 1) == 0 ? null : values.copy(row);
  }

  public void clear() {
    count = 0;
    nullCount = 0;
    keys.clear();
    values.clear();
  }

  /** Adds the columns to a frame, which reads them when it is sent. */
  void addTo(BatchWriter frame) {
    frame.begin(count);
    frame.fixedColumn(ops, count);
    frame.fixedColumn(families, 2 * count);
    frame.binaryColumn(keys, validity, 0);
    frame.binaryColumn(values, validity, nullCount);
    frame.fixedColumn(presences, count);
  }
}
