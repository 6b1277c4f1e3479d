package io.cairn.spark.protocol;

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

  public static void changes(
      BatchWriter writer, long version, String checkpointId, long fromRow, int limitRows) {
    writer.begin(1);
    writer.oneLong(version);
    writer.oneBinary(checkpointId.getBytes(StandardCharsets.UTF_8));
    writer.oneLong(fromRow);
    writer.oneInt(limitRows);
  }

  /** Reads a reply to GET, which has no keys, or to SCAN. */
  public static void readRows(
      BatchReader reader, FrameHeader header, byte[] payload, RowPage into) {
    boolean hasKeys = header.kind() == (FrameKind.SCAN | FrameKind.REPLY);
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
    rows.reset(header.rows(), 0);
    ChangePage page = new ChangePage(new byte[header.rows()], new short[header.rows()], rows);
    reader.begin(payload, header, 4);
    reader.bytes(page.ops());
    reader.shorts(page.families());
    reader.binary(rows.keyOffset, rows.keyLength);
    finish(reader, header, rows);
    return page;
  }

  private static void finish(BatchReader reader, FrameHeader header, RowPage rows) {
    reader.binary(rows.valueOffset, rows.valueLength);
    rows.more = header.hasMore();
    rows.data = reader.takePayload();
  }
}
