package io.cairn.spark.protocol;

/**
 * The rows of one WRITES frame: at most one per key, as references into the slabs that contain
 * them.
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

  public int count;
  public long keyBytes;
  public long valueBytes;
  public final byte[] op = new byte[MAX_ROWS];
  public final byte[] presence = new byte[MAX_ROWS];
  public final short[] family = new short[MAX_ROWS];
  public final byte[][] keyBase = new byte[MAX_ROWS][];
  public final int[] keyOffset = new int[MAX_ROWS];
  public final int[] keyLength = new int[MAX_ROWS];
  public final byte[][] valueBase = new byte[MAX_ROWS][];
  public final int[] valueOffset = new int[MAX_ROWS];

  /** -1: no value (DELETE, DROP_CF). */
  public final int[] valueLength = new int[MAX_ROWS];

  public boolean isFull() {
    return count == MAX_ROWS || keyBytes + valueBytes >= TARGET_BYTES;
  }

  public void clear() {
    count = 0;
    keyBytes = 0;
    valueBytes = 0;
  }
}
