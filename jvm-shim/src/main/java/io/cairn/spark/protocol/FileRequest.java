package io.cairn.spark.protocol;

import io.cairn.spark.errors.CairnException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * A request of the worker on a storage connection. Spec: docs/protocol.md, "Storage connections".
 *
 * @param flag {@code mode} of FILE_WRITE, {@code replaces} of FILE_RENAME; else 0
 * @param paths one path; two of FILE_RENAME; any number of FILE_DELETE
 */
public record FileRequest(int flag, long offset, long length, List<String> paths) {
  public static final int MAX_DATA_BYTES = 256 << 10;

  /** Of any frame of the worker: a deletion names a hundred paths. */
  public static final int MAX_REQUEST_BYTES = 2 << 20;

  /** Atomic rename without replacement. */
  public static final int PUBLISHES_BY_RENAME = 1;

  /** A file appears, whole, when it is closed. */
  public static final int PUBLISHES_BY_CLOSE = 2;

  public static final int STATUS_BYTES = 16;

  public String path() {
    return paths.get(0);
  }

  /** Reads a request; throws if it is not one of this protocol. */
  public static FileRequest read(FrameHeader header, byte[] payload) {
    ByteBuffer in =
        ByteBuffer.wrap(payload, 0, header.payloadBytes()).order(ByteOrder.LITTLE_ENDIAN);
    try {
      FileRequest request =
          switch (header.kind()) {
            case FrameKind.FILE_READ ->
                new FileRequest(0, in.getLong(), in.getLong(), List.of(path(in, in.remaining())));
            case FrameKind.FILE_WRITE ->
                new FileRequest(in.get(), 0, 0, List.of(path(in, in.remaining())));
            case FrameKind.FILE_RENAME -> {
              int replaces = in.get();
              String from = path(in, in.getInt());
              yield new FileRequest(replaces, 0, 0, List.of(from, path(in, in.remaining())));
            }
            case FrameKind.FILE_DELETE -> new FileRequest(0, 0, 0, paths(in, header.rows()));
            case FrameKind.FILE_STATUS, FrameKind.FILE_LIST, FrameKind.FILE_SYSTEM ->
                new FileRequest(0, 0, 0, List.of(path(in, in.remaining())));
            default ->
                throw CairnException.protocol(
                    "the engine sent a frame of kind 0x"
                        + Integer.toHexString(header.kind())
                        + " on a storage connection");
          };
      if (in.hasRemaining()
          || request.flag < 0
          || request.flag > 1
          || request.offset < 0
          || request.length < 0) {
        throw malformed(header);
      }
      return request;
    } catch (RuntimeException e) {
      throw e instanceof CairnException known ? known : malformed(header);
    }
  }

  private static CairnException malformed(FrameHeader header) {
    return CairnException.protocol(
        "the engine sent a malformed request of kind 0x" + Integer.toHexString(header.kind()));
  }

  private static List<String> paths(ByteBuffer in, int count) {
    List<String> paths = new ArrayList<>();
    for (int number = 0; number < count; number++) {
      paths.add(path(in, in.getInt()));
    }
    return paths;
  }

  private static String path(ByteBuffer in, int bytes) {
    byte[] path = new byte[Math.min(bytes, in.remaining() + 1)];
    in.get(path);
    String text = new String(path, StandardCharsets.UTF_8);
    if (!text.startsWith("/")) {
      throw new IllegalArgumentException();
    }
    return text;
  }

  /** Returns the frame of a reply; its bytes are copied. */
  public static byte[] reply(FrameHeader request, boolean hasMore, int rows, ByteBuffer payload) {
    return reply(request.kind() | FrameKind.REPLY, request, hasMore, rows, payload);
  }

  /** Returns the ERROR frame that answers a request. */
  public static byte[] error(FrameHeader request, CairnException error, String object) {
    byte[] json = Json.bytes(Json.MAPPER.valueToTree(error.fields(object)));
    return reply(FrameKind.ERROR, request, false, 0, ByteBuffer.wrap(json));
  }

  private static byte[] reply(
      int kind, FrameHeader request, boolean hasMore, int rows, ByteBuffer payload) {
    int bytes = payload.remaining();
    byte[] frame = new byte[FrameHeader.BYTES + bytes];
    int flags = hasMore ? FrameKind.FLAG_MORE : 0;
    new FrameHeader(kind, flags, request.session(), request.sequence(), 0, rows, bytes)
        .write(frame, 0);
    payload.get(frame, FrameHeader.BYTES, bytes);
    return frame;
  }

  /** Returns a {@code file_status}. */
  public static ByteBuffer status(long sizeBytes, long modifiedMs) {
    return ByteBuffer.allocate(STATUS_BYTES)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putLong(sizeBytes)
        .putLong(modifiedMs)
        .flip();
  }

  /** Returns one row of the reply to FILE_LIST. */
  public static byte[] entry(long sizeBytes, long modifiedMs, String path) {
    byte[] name = path.getBytes(StandardCharsets.UTF_8);
    return ByteBuffer.allocate(STATUS_BYTES + Integer.BYTES + name.length)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putLong(sizeBytes)
        .putLong(modifiedMs)
        .putInt(name.length)
        .put(name)
        .array();
  }
}
