package io.cairn.spark.protocol;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Builds LOOKUP frames: a few keys of one family, in one small reused array. Not thread-safe.
 *
 * <pre>
 *   lookup := u16 cf  u32 key_bytes[rows]  key[rows]
 * </pre>
 */
public final class LookupWriter implements FrameWriter {
  public static final int MAX_KEYS = 64;

  /** Bound of a payload. */
  public static final int MAX_BYTES = 16 << 10;

  private final byte[] frame = new byte[FrameHeader.BYTES + MAX_BYTES];
  private final ByteBuffer buffer = ByteBuffer.wrap(frame).order(ByteOrder.LITTLE_ENDIAN);
  private int rows;

  /** Writes a payload. False: the keys are over the limits of a LOOKUP, or there are none. */
  public boolean begin(int family, byte[][] keys, int count) {
    if (count < 1 || count > MAX_KEYS) {
      return false;
    }
    rows = count;
    buffer.position(FrameHeader.BYTES);
    buffer.putShort((short) family);
    long bytes = 2 + 4L * count;
    for (int row = 0; row < count; row++) {
      bytes += keys[row].length;
      buffer.putInt(keys[row].length);
    }
    if (bytes > MAX_BYTES) {
      return false;
    }
    for (int row = 0; row < count; row++) {
      buffer.put(keys[row]);
    }
    return true;
  }

  @Override
  public void finish(int kind, long session, long sequence, long applied) {
    new FrameHeader(kind, 0, session, sequence, applied, rows, length() - FrameHeader.BYTES)
        .write(frame, 0);
  }

  @Override
  public byte[] array() {
    return frame;
  }

  @Override
  public int start() {
    return 0;
  }

  @Override
  public int length() {
    return buffer.position();
  }
}
