package io.cairn.spark.protocol;

import io.cairn.spark.errors.CairnException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * The 40 bytes before each payload, little-endian.
 *
 * <pre>
 *   header := u32 magic = "CRNF"  u8 protocol = 1  u8 kind  u16 flags  u64 session  u64 sequence  u64 applied  u32 rows  u32 payload_bytes
 * </pre>
 *
 * @param sequence in WRITES the frame's number in its session, from 1; in requests any number,
 *     which the reply repeats
 * @param applied require_applied in requests, applied_through in replies
 */
public record FrameHeader(
    int kind, int flags, long session, long sequence, long applied, int rows, int payloadBytes) {
  public static final int BYTES = 40;
  public static final int MAX_PAYLOAD_BYTES = 64 << 20;

  /** Replies may be larger than requests: a list that grew by many appends is returned whole. */
  public static final int MAX_REPLY_BYTES = 1 << 30;

  public static final int PROTOCOL = 1;

  /** "CRNF" as a little-endian number. */
  private static final int MAGIC = 'C' | 'R' << 8 | 'N' << 16 | 'F' << 24;

  private static final int SESSION_AT = 8;

  public void write(byte[] into, int at) {
    ByteBuffer buffer = ByteBuffer.wrap(into, at, BYTES).order(ByteOrder.LITTLE_ENDIAN);
    buffer.putInt(MAGIC).put((byte) PROTOCOL).put((byte) kind).putShort((short) flags);
    buffer.putLong(session).putLong(sequence).putLong(applied).putInt(rows).putInt(payloadBytes);
  }

  /** Changes the session of a whole frame. */
  public static void setSession(byte[] frame, long session) {
    ByteBuffer.wrap(frame).order(ByteOrder.LITTLE_ENDIAN).putLong(SESSION_AT, session);
  }

  /** Reads a header; throws if it is not one of this protocol. */
  public static FrameHeader read(byte[] from, int at) {
    ByteBuffer buffer = ByteBuffer.wrap(from, at, BYTES).order(ByteOrder.LITTLE_ENDIAN);
    int magic = buffer.getInt();
    int protocol = buffer.get() & 0xFF;
    if (magic != MAGIC || protocol != PROTOCOL) {
      throw CairnException.protocol(
          "the engine sent a frame with magic 0x"
              + Integer.toHexString(magic)
              + ", protocol "
              + protocol);
    }
    int kind = buffer.get() & 0xFF;
    int flags = buffer.getShort() & 0xFFFF;
    FrameHeader header =
        new FrameHeader(
            kind,
            flags,
            buffer.getLong(),
            buffer.getLong(),
            buffer.getLong(),
            buffer.getInt(),
            buffer.getInt());
    if (header.payloadBytes < 0 || header.payloadBytes > MAX_REPLY_BYTES || header.rows < 0) {
      throw CairnException.protocol(
          "the engine sent a frame of " + Integer.toUnsignedString(header.payloadBytes) + " bytes");
    }
    return header;
  }

  public boolean hasMore() {
    return (flags & FrameKind.FLAG_MORE) != 0;
  }
}
