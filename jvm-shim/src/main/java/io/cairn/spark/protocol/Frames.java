package io.cairn.spark.protocol;

import io.cairn.spark.errors.CairnException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * The columns of each kind of frame. Spec: docs/protocol.md, "Data channel".
 *
 * <p>A method that writes begins the batch and adds its columns; {@link BatchWriter#finish} then
 * completes the frame. A method that reads leaves the payload to the page.
 */
public final class Frames {
  private Frames() {}

  public static void writes(BatchWriter writer, WriteBlock block) {
    block.addTo(writer);
  }

  public static void get(BatchWriter writer, int family, byte[][] keys, int count) {
    writer.begin(count);
    writer.shorts(family);
    writer.binary(keys);
  }

  public static void scan(BatchWriter writer, ScanRequest request) {
    writer.begin(1);
    writer.shorts(request.family());
    writer.oneBinary(request.from());
    writer.oneByte(request.isInclusive() ? 1 : 0);
    writer.oneBinary(request.to());
    writer.oneInt(request.limitRows());
    writer.oneInt(request.limitBytes());
  }

  /** Ranges that ascend and do not overlap; a null end: the end of the family. */
  public static void ranges(BatchWriter writer, int family, byte[][] from, byte[][] to, int count) {
    writer.begin(count);
    writer.shorts(family);
    writer.binary(from);
    writer.binary(to);
  }

  public static void changes(
      BatchWriter writer, long version, String checkpointId, long fromRow, int limitRows) {
    writer.begin(1);
    writer.oneLong(version);
    writer.oneBinary(checkpointId.getBytes(StandardCharsets.UTF_8));
    writer.oneLong(fromRow);
    writer.oneInt(limitRows);
  }

  /** Returns a whole COMMIT frame. */
  public static byte[] commit(
      long session, long sequence, CommitRequest request, CommitRequest.Sent sent) {
    return request.frame(session, sequence, sent);
  }

  /**
   * Reads a reply to LOOKUP. Checks every length before a row is returned.
   *
   * <pre>
   *   lookup_reply := u8 origin[rows]  u32 value_bytes[rows]  value[rows]    ; 0xFFFFFFFF: no value
   * </pre>
   */
  public static void readLookup(FrameHeader header, byte[] payload, RowPage into) {
    int rows = header.rows();
    if (rows > LookupWriter.MAX_KEYS || header.payloadBytes() < 5L * rows) {
      throw CairnException.protocol(
          "a reply of " + header.payloadBytes() + " bytes does not have " + rows + " rows");
    }
    into.reset(rows, 0);
    ByteBuffer lengths = ByteBuffer.wrap(payload).order(ByteOrder.LITTLE_ENDIAN);
    long end = 5L * rows;
    for (int row = 0; row < rows; row++) {
      byte origin = payload[row];
      int length = lengths.getInt(rows + 4 * row);
      boolean hasValue = origin == RowPage.COMMITTED || origin == RowPage.SPILL;
      if (length < -1 || hasValue != (length >= 0) || end + length > header.payloadBytes()) {
        throw CairnException.protocol(
            "row "
                + row
                + " of a reply has origin "
                + origin
                + " and a value of "
                + length
                + " bytes");
      }
      into.origin[row] = origin;
      into.valueOffset[row] = (int) end;
      into.valueLength[row] = length;
      end += Math.max(0, length);
    }
    if (end != header.payloadBytes()) {
      throw CairnException.protocol("a reply is longer than its values");
    }
    into.more = header.hasMore();
    into.data = payload;
  }

  /** Reads a reply to GET, which has no keys, or to SCAN or RANGES. */
  public static void readRows(
      BatchReader reader, FrameHeader header, byte[] payload, RowPage into) {
    boolean hasKeys = header.kind() != (FrameKind.GET | FrameKind.REPLY);
    requirePossible(header);
    into.reset(header.rows(), 0);
    reader.begin(payload, header, hasKeys ? 3 : 2);
    reader.bytes(into.origin);
    if (hasKeys) {
      reader.binary(into.keyOffset, into.keyLength);
    }
    finish(reader, header, into);
  }

  public static ChangePage readChanges(BatchReader reader, FrameHeader header, byte[] payload) {
    RowPage rows = new RowPage();
    requirePossible(header);
    rows.reset(header.rows(), 0);
    ChangePage page = new ChangePage(new byte[header.rows()], new short[header.rows()], rows);
    reader.begin(payload, header, 4);
    reader.bytes(page.ops());
    reader.shorts(page.families());
    reader.binary(rows.keyOffset, rows.keyLength);
    finish(reader, header, rows);
    return page;
  }

  /** Refuses rows that the payload cannot have, before memory is allocated for them. */
  private static void requirePossible(FrameHeader header) {
    if (header.rows() > header.payloadBytes()) {
      throw CairnException.protocol(
          "a reply of "
              + header.payloadBytes()
              + " bytes does not have "
              + header.rows()
              + " rows");
    }
  }

  private static void finish(BatchReader reader, FrameHeader header, RowPage rows) {
    reader.binary(rows.valueOffset, rows.valueLength);
    rows.more = header.hasMore();
    rows.data = reader.takePayload();
  }
}
