package io.cairn.spark.protocol;

import io.cairn.spark.errors.CairnException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;

/**
 * Reads the record batch of a reply without copying it: keys and values become regions of the
 * payload's array.
 *
 * <p>Every offset is checked against the payload before a row is returned: a corrupt frame, or one
 * of another format, raises CAIRN_PROTOCOL. Not thread-safe.
 */
public final class BatchReader {
  private byte[] payload;
  private ByteBuffer bytes;
  private int payloadBytes;
  private int bodyStart;
  private RecordBatch batch;
  private int rows;
  private int column;
  private int buffer;

  /** Begins to read a payload whose schema has the given number of columns. */
  public void begin(byte[] data, FrameHeader header, int columns) {
    payload = data;
    payloadBytes = header.payloadBytes();
    bytes = ByteBuffer.wrap(data, 0, payloadBytes).order(ByteOrder.LITTLE_ENDIAN);
    column = 0;
    buffer = 0;
    rows = header.rows();
    if (payloadBytes < 8 || bytes.getInt(0) != -1) {
      throw CairnException.protocol("a reply is not an Arrow message");
    }
    int metadataBytes = bytes.getInt(4);
    if (metadataBytes < 8 || metadataBytes > payloadBytes - 8) {
      throw CairnException.protocol("a reply's metadata is longer than the reply");
    }
    bodyStart = 8 + metadataBytes;
    try {
      readMetadata(metadataBytes, columns);
    } catch (IndexOutOfBoundsException | IllegalArgumentException e) {
      throw CairnException.protocol("a reply's metadata is corrupt: " + e);
    }
  }

  private void readMetadata(int metadataBytes, int columns) {
    ByteBuffer metadata =
        ByteBuffer.wrap(payload, 8, metadataBytes).slice().order(ByteOrder.LITTLE_ENDIAN);
    Message message = Message.getRootAsMessage(metadata);
    if (message.headerType() != MessageHeader.RecordBatch) {
      throw CairnException.protocol("a reply is not a record batch");
    }
    batch = (RecordBatch) message.header(new RecordBatch());
    if (batch == null
        || batch.length() != rows
        || batch.nodesLength() != columns
        || batch.compression() != null) {
      throw CairnException.protocol(
          "a reply's batch does not fit its frame: " + rows + " rows, " + columns + " columns");
    }
  }

  /** Reads a uint8 column. */
  public void bytes(byte[] into) {
    skipValidity();
    int from = region(rows);
    System.arraycopy(payload, from, into, 0, rows);
  }

  /** Reads a uint16 column. */
  public void shorts(short[] into) {
    skipValidity();
    ByteBuffer.wrap(payload, region(rows * 2), rows * 2)
        .order(ByteOrder.LITTLE_ENDIAN)
        .asShortBuffer()
        .get(into, 0, rows);
  }

  /** Reads a binary column as regions of the payload; the length of a null is -1. */
  public void binary(int[] offset, int[] length) {
    long nulls = batch.nodes(column++).nullCount();
    int validity = region(nulls == 0 ? 0 : (rows + 7) / 8);
    if (rows == 0) {
      // Arrow allows an empty column without offsets.
      buffer += 2;
      return;
    }
    int offsets = region(4 * (rows + 1));
    long dataBytes = batch.buffers(buffer).length();
    int data = region(0);
    int from = bytes.getInt(offsets);
    for (int row = 0; row < rows; row++) {
      int to = bytes.getInt(offsets + 4 * row + 4);
      if (from < 0 || to < from || to > dataBytes) {
        throw CairnException.protocol(
            "offsets of a reply's row " + row + " are " + from + " and " + to + " of " + dataBytes);
      }
      offset[row] = data + from;
      length[row] =
          nulls != 0 && (payload[validity + (row >> 3)] >> (row & 7) & 1) == 0 ? -1 : to - from;
      from = to;
    }
  }

  private void skipValidity() {
    if (batch.nodes(column++).nullCount() != 0) {
      throw CairnException.protocol("a reply has nulls in a column that allows none");
    }
    region(0);
  }

  /** Returns the start of the next buffer in the payload; it has at least the given bytes. */
  private int region(int atLeast) {
    org.apache.arrow.flatbuf.Buffer next = batch.buffers(buffer++);
    long left = payloadBytes - bodyStart - next.length();
    if (next.length() < atLeast || next.offset() < 0 || next.offset() > left) {
      throw CairnException.protocol("a buffer of a reply lies outside it");
    }
    return bodyStart + (int) next.offset();
  }

  /** Ends the reading and returns the payload, which the caller then owns. */
  byte[] takePayload() {
    byte[] taken = payload;
    payload = null;
    bytes = null;
    batch = null;
    return taken;
  }
}
