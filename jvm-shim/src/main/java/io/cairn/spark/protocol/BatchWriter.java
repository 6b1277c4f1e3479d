package io.cairn.spark.protocol;

import com.google.flatbuffers.FlatBufferBuilder;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.errors.CairnException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.arrow.flatbuf.Buffer;
import org.apache.arrow.flatbuf.FieldNode;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.MetadataVersion;
import org.apache.arrow.flatbuf.RecordBatch;

/**
 * Builds one frame: header, then an encapsulated Arrow record batch message, column by column. The
 * columns are either all built here, in one reused array, or all in arrays of the caller.
 *
 * <pre>
 *   frame   := header[40] message
 *   message := ff ff ff ff  i32 metadata_bytes  metadata (padded to 8)  body        ; Arrow IPC, "encapsulated message format"
 *   body    := per column: validity (empty if no nulls)  [i32 offsets]  data        ; each padded to 8
 * </pre>
 *
 * <p>Each column is added by one call, in the order of the schema. It uses heap arrays instead of
 * Arrow's buffers: there is no memory off the heap to free. Not thread-safe.
 */
public final class BatchWriter implements FrameWriter {
  /** Space for the header and the metadata (some 200 bytes for five columns); a multiple of 8. */
  private static final int PREFIX_BYTES = FrameHeader.BYTES + 984;

  /** An array that grew beyond this for one large row is replaced after that frame. */
  private static final int KEEP_BYTES = 4 << 20;

  private static final int FIRST_BYTES = 4 << 10;
  private static final byte[] NONE = new byte[0];
  private static final int MAX_COLUMNS = 8;

  private byte[] frame = new byte[FIRST_BYTES];
  private final long[] nullCounts = new long[MAX_COLUMNS];
  private final long[] bufferOffsets = new long[MAX_COLUMNS * 3];
  private final long[] bufferLengths = new long[MAX_COLUMNS * 3];
  private FlatBufferBuilder metadata = new FlatBufferBuilder(512);
  private int rows;
  private int columns;
  private int buffers;
  private int position;
  private int start;
  private int length;

  /** The frame's own array, then the regions of the caller. */
  private final FrameBytes frameBytes = new FrameBytes();

  private long regionBytes;

  public void begin(int rowCount) {
    rows = rowCount;
    columns = 0;
    buffers = 0;
    position = PREFIX_BYTES;
    regionBytes = 0;
    frameBytes.clear();
    if (frame.length < FIRST_BYTES || frame.length > KEEP_BYTES) {
      frame = new byte[FIRST_BYTES];
    }
    frameBytes.add(frame, 0, 0);
  }

  /** Frees the last frame, which is invalid from now on. The next {@link #begin} allocates one. */
  public void release() {
    frameBytes.clear();
    frame = NONE;
  }

  /** A column of fixed width in an array of the caller, who keeps it until the frame was sent. */
  void fixedColumn(byte[] values, int bytes) {
    nullCounts[columns++] = 0;
    addRegion(values, 0);
    addRegion(values, bytes);
  }

  /**
   * A binary column in arrays of the caller, who keeps them until the frame was sent.
   *
   * @param validity one bit per row, not read if there are no nulls
   */
  void binaryColumn(BinaryColumn column, byte[] validity, int nulls) {
    nullCounts[columns++] = nulls;
    addRegion(validity, nulls == 0 ? 0 : (rows + 7) / 8);
    addRegion(column.offsets, 4 * (rows + 1));
    addRegion(column.data, column.dataBytes);
  }

  /** A buffer in an array that has space for the padding after it. */
  private void addRegion(byte[] array, int bytes) {
    bufferOffsets[buffers] = position - PREFIX_BYTES + regionBytes;
    bufferLengths[buffers++] = bytes;
    int end = padded(bytes);
    Arrays.fill(array, bytes, end, (byte) 0);
    if (end > 0) {
      frameBytes.add(array, 0, end);
      regionBytes += end;
    }
  }

  public void shorts(short[] values) {
    notNull();
    reserve(rows * 2L);
    ByteBuffer.wrap(frame, position, rows * 2)
        .order(ByteOrder.LITTLE_ENDIAN)
        .asShortBuffer()
        .put(values, 0, rows);
    endBuffer(rows * 2);
  }

  /** A uint16 column with the same value in every row. */
  public void shorts(int value) {
    notNull();
    reserve(rows * 2L);
    for (int row = 0; row < rows; row++) {
      frame[position + 2 * row] = (byte) value;
      frame[position + 2 * row + 1] = (byte) (value >> 8);
    }
    endBuffer(rows * 2);
  }

  /** One uint32 cell of a batch of one row. */
  public void oneInt(int value) {
    notNull();
    reserve(4);
    putInt(position, value);
    endBuffer(4);
  }

  /** One uint64 cell of a batch of one row. */
  public void oneLong(long value) {
    notNull();
    reserve(8);
    putInt(position, (int) value);
    putInt(position + 4, (int) (value >>> 32));
    endBuffer(8);
  }

  /** One uint8 cell of a batch of one row. */
  public void oneByte(int value) {
    notNull();
    reserve(1);
    frame[position] = (byte) value;
    endBuffer(1);
  }

  /** One binary cell of a batch of one row; may be null. */
  public void oneBinary(byte[] value) {
    binary(
        new byte[][] {value == null ? new byte[0] : value},
        new int[1],
        new int[] {value == null ? -1 : value.length},
        value == null ? 0 : value.length);
  }

  /** Whole arrays as a binary column. */
  public void binary(byte[][] values) {
    int[] lengths = new int[rows];
    long total = 0;
    for (int row = 0; row < rows; row++) {
      lengths[row] = values[row] == null ? -1 : values[row].length;
      total += Math.max(0, lengths[row]);
    }
    binary(values, new int[rows], lengths, total);
  }

  /**
   * Regions of arrays as a binary column; a length of -1 is a null.
   *
   * @param totalBytes sum of the lengths
   */
  public void binary(byte[][] base, int[] offset, int[] lengths, long totalBytes) {
    reserve((rows + 7) / 8 + 8 + 4L * (rows + 1) + 8 + totalBytes);
    int nulls = 0;
    for (int row = 0; row < rows; row++) {
      if (lengths[row] < 0) {
        nulls++;
      }
    }
    nullCounts[columns++] = nulls;
    validity(lengths, nulls);
    int offsets = position;
    int data = position + padded(4 * (rows + 1));
    int dataStart = data;
    for (int row = 0; row < rows; row++) {
      putInt(offsets + 4 * row, data - dataStart);
      int bytes = lengths[row];
      if (bytes > 0) {
        System.arraycopy(base[row], offset[row], frame, data, bytes);
        data += bytes;
      }
    }
    putInt(offsets + 4 * rows, data - dataStart);
    endBuffer(4 * (rows + 1));
    endBuffer(data - dataStart);
  }

  private void validity(int[] lengths, int nulls) {
    if (nulls == 0) {
      endBuffer(0);
      return;
    }
    int bytes = (rows + 7) / 8;
    Arrays.fill(frame, position, position + bytes, (byte) 0);
    for (int row = 0; row < rows; row++) {
      if (lengths[row] >= 0) {
        frame[position + (row >> 3)] |= (byte) (1 << (row & 7));
      }
    }
    endBuffer(bytes);
  }

  /**
   * Completes the frame: {@link #length()} bytes of {@link #array()} from {@link #start()} on, then
   * the columns in arrays of the caller. {@link #frame()} is all of it.
   */
  @Override
  public void finish(int kind, long session, long sequence, long applied) {
    long bodyBytes = position - PREFIX_BYTES + regionBytes;
    ByteBuffer message = message(bodyBytes);
    int metadataBytes = padded(message.remaining());
    if (metadataBytes + 8 + FrameHeader.BYTES > PREFIX_BYTES) {
      throw CairnException.protocol("metadata of a batch takes " + metadataBytes + " bytes");
    }
    int at = PREFIX_BYTES - metadataBytes;
    int filled = message.remaining();
    message.get(frame, at, filled);
    Arrays.fill(frame, at + filled, PREFIX_BYTES, (byte) 0);
    putInt(at - 4, metadataBytes);
    putInt(at - 8, -1);
    start = at - 8 - FrameHeader.BYTES;
    length = position - start;
    long payloadBytes = position - start - FrameHeader.BYTES + regionBytes;
    if (payloadBytes > FrameHeader.MAX_PAYLOAD_BYTES) {
      throw CairnException.rowTooLarge(payloadBytes, FrameHeader.MAX_PAYLOAD_BYTES);
    }
    new FrameHeader(kind, 0, session, sequence, applied, rows, (int) payloadBytes)
        .write(frame, start);
    frameBytes.set(0, frame, start, length);
  }

  private ByteBuffer message(long bodyBytes) {
    metadata.clear();
    RecordBatch.startNodesVector(metadata, columns);
    for (int column = columns - 1; column >= 0; column--) {
      FieldNode.createFieldNode(metadata, rows, nullCounts[column]);
    }
    int nodesVector = metadata.endVector();
    RecordBatch.startBuffersVector(metadata, buffers);
    for (int buffer = buffers - 1; buffer >= 0; buffer--) {
      Buffer.createBuffer(metadata, bufferOffsets[buffer], bufferLengths[buffer]);
    }
    int buffersVector = metadata.endVector();
    RecordBatch.startRecordBatch(metadata);
    RecordBatch.addLength(metadata, rows);
    RecordBatch.addNodes(metadata, nodesVector);
    RecordBatch.addBuffers(metadata, buffersVector);
    int batch = RecordBatch.endRecordBatch(metadata);
    Message.startMessage(metadata);
    Message.addVersion(metadata, MetadataVersion.V5);
    Message.addHeaderType(metadata, MessageHeader.RecordBatch);
    Message.addHeader(metadata, batch);
    Message.addBodyLength(metadata, bodyBytes);
    metadata.finish(Message.endMessage(metadata));
    return metadata.dataBuffer();
  }

  /** The whole frame; valid until the next {@link #begin}. */
  public FrameBytes frame() {
    return frameBytes;
  }

  @Override
  public byte[] array() {
    return frame;
  }

  @Override
  public int start() {
    return start;
  }

  @Override
  public int length() {
    return length;
  }

  private void notNull() {
    nullCounts[columns++] = 0;
    endBuffer(0);
  }

  private void endBuffer(int bytes) {
    bufferOffsets[buffers] = position - PREFIX_BYTES;
    bufferLengths[buffers++] = bytes;
    int end = position + padded(bytes);
    if (end > frame.length) {
      frame = Arrays.copyOf(frame, end);
    }
    Arrays.fill(frame, position + bytes, end, (byte) 0);
    position = end;
  }

  private void reserve(long bytes) {
    long needed = position + bytes + 16;
    if (needed > FrameHeader.MAX_PAYLOAD_BYTES + (1L << 20)) {
      throw CairnException.rowTooLarge(needed, FrameHeader.MAX_PAYLOAD_BYTES);
    }
    if (needed > frame.length) {
      frame =
          Arrays.copyOf(
              frame,
              (int) Math.max(needed, Math.min(2L * frame.length, FrameHeader.MAX_PAYLOAD_BYTES)));
    }
  }

  private void putInt(int at, int value) {
    Bytes.putLittleInt(frame, Bytes.ARRAY + at, value);
  }

  private static int padded(int bytes) {
    return (bytes + 7) & ~7;
  }
}
