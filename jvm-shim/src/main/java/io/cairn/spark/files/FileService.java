package io.cairn.spark.files;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.protocol.FileRequest;
import io.cairn.spark.protocol.FrameHeader;
import io.cairn.spark.protocol.FrameKind;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Answers the requests of one storage connection, one after the other. One thread.
 *
 * <p>Spec: docs/protocol.md, "Storage connections".
 */
public final class FileService {
  private static final int LISTING_BYTES = 64 << 10;

  private final Connection connection;
  private final byte[] buffer = new byte[FileRequest.MAX_DATA_BYTES];

  /** The connection's frames. */
  public interface Connection {
    /** Sends a whole frame. */
    void send(byte[] frame);

    /** Receives the next frame of a request that has begun. */
    FrameHeader receive();

    /** The payload of the last frame; valid until the next one is received. */
    byte[] payload();

    /** Whether nothing can be sent any more. */
    boolean isBroken();
  }

  public FileService(Connection connection) {
    this.connection = connection;
  }

  /**
   * Answers a request. An error of the file system is an answer too.
   *
   * @throws CairnException the connection is broken, or the request is none of the protocol
   */
  public void serve(FrameHeader header) {
    FileRequest request = FileRequest.read(header, connection.payload());
    if (header.kind() == FrameKind.FILE_WRITE) {
      write(header, request);
      return;
    }
    byte[] failure;
    try {
      answer(header, request, FileSystems.of(header.session()));
      return;
    } catch (CairnException e) {
      if (connection.isBroken()) {
        throw e;
      }
      failure = FileRequest.error(header, e, url(header, request));
    } catch (OutOfMemoryError e) {
      failure = FileRequest.error(header, FileErrors.outOfMemory(e), url(header, request));
    }
    connection.send(failure);
  }

  private void answer(FrameHeader header, FileRequest request, HadoopFiles files) {
    switch (header.kind()) {
      case FrameKind.FILE_READ ->
          files.read(
              request.path(),
              request.offset(),
              request.length(),
              (status, hasBytes) ->
                  send(
                      header,
                      hasBytes,
                      0,
                      FileRequest.status(status.getLen(), status.getModificationTime())),
              (bytes, count, hasMore) -> send(header, hasMore, 0, ByteBuffer.wrap(bytes, 0, count)),
              buffer);
      case FrameKind.FILE_RENAME -> {
        files.rename(request.path(), request.paths().get(1), request.flag() == 1);
        send(header, false, 0, ByteBuffer.allocate(0));
      }
      case FrameKind.FILE_STATUS -> {
        var status = files.status(request.path());
        send(header, false, 0, FileRequest.status(status.getLen(), status.getModificationTime()));
      }
      case FrameKind.FILE_LIST -> list(header, request, files);
      case FrameKind.FILE_DELETE -> {
        files.delete(request.paths());
        send(header, false, 0, ByteBuffer.allocate(0));
      }
      default -> {
        int publishing =
            files.publishesByClose()
                ? FileRequest.PUBLISHES_BY_CLOSE
                : FileRequest.PUBLISHES_BY_RENAME;
        send(header, false, 0, ByteBuffer.wrap(new byte[] {(byte) publishing}));
      }
    }
  }

  private void list(FrameHeader header, FileRequest request, HadoopFiles files) {
    ByteArrayOutputStream page = new ByteArrayOutputStream();
    int[] rows = new int[1];
    files.list(
        request.path(),
        (path, status) -> {
          page.writeBytes(FileRequest.entry(status.getLen(), status.getModificationTime(), path));
          rows[0]++;
          if (page.size() >= LISTING_BYTES) {
            send(header, true, rows[0], ByteBuffer.wrap(page.toByteArray()));
            page.reset();
            rows[0] = 0;
          }
        });
    send(header, false, rows[0], ByteBuffer.wrap(page.toByteArray()));
  }

  /** Writes a file from the frames that follow; reads all of them also after a failure. */
  private void write(FrameHeader header, FileRequest request) {
    HadoopFiles.NewFile file = null;
    CairnException failure = null;
    long written = 0;
    boolean isWhole = false;
    try {
      boolean hasMore = true;
      try {
        file = FileSystems.of(header.session()).create(request.path(), request.flag() == 0);
      } catch (CairnException e) {
        failure = e;
      }
      while (hasMore) {
        FrameHeader data = connection.receive();
        if (data.kind() != FrameKind.FILE_DATA || data.sequence() != header.sequence()) {
          throw CairnException.protocol("the engine did not send the bytes of a file");
        }
        hasMore = data.hasMore();
        if (failure == null) {
          try {
            file.write(connection.payload(), data.payloadBytes());
            written += data.payloadBytes();
          } catch (CairnException e) {
            failure = e;
          }
        }
      }
      if (failure == null) {
        try {
          file.close();
          isWhole = true;
        } catch (CairnException e) {
          failure = e;
        }
      }
    } finally {
      if (file != null && !isWhole) {
        file.abandon();
      }
    }
    if (failure != null) {
      connection.send(FileRequest.error(header, failure, url(header, request)));
      return;
    }
    ByteBuffer reply =
        ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN).putLong(written).flip();
    connection.send(FileRequest.reply(header, false, 0, reply));
  }

  private void send(FrameHeader header, boolean hasMore, int rows, ByteBuffer payload) {
    connection.send(FileRequest.reply(header, hasMore, rows, payload));
  }

  private static String url(FrameHeader header, FileRequest request) {
    try {
      return FileSystems.of(header.session()).url(request.path());
    } catch (RuntimeException e) {
      return request.path();
    }
  }
}
