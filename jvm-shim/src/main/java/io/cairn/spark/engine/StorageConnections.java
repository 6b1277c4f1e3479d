package io.cairn.spark.engine;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.files.FileService;
import io.cairn.spark.protocol.FileRequest;
import io.cairn.spark.protocol.FrameHeader;
import io.cairn.spark.protocol.FrameKind;
import java.nio.file.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The storage connections to one worker: each has a thread of its own, which answers the worker's
 * requests.
 *
 * <p>One connection is kept free, as far as the limit allows: a thread that begins to answer while
 * no other is free starts the next one. The threads end with the worker. Thread-safe.
 */
public final class StorageConnections implements AutoCloseable {
  /** The field of {@code storage} in {@code open_instance} that needs these connections. */
  public static final String FILE_SYSTEM = "file_system";

  private static final Logger LOG = LoggerFactory.getLogger(StorageConnections.class);
  private static final int MAX_CONNECTIONS = 64;

  private final String worker;
  private final Path socket;
  private final String token;
  private final int timeoutMs;
  private int openCount;
  private int freeCount;
  private boolean isClosed;

  StorageConnections(String worker, Path socket, String token, int timeoutMs) {
    this.worker = worker;
    this.socket = socket;
    this.token = token;
    this.timeoutMs = timeoutMs;
  }

  /** Opens a connection if none is free. Does not wait for it. */
  synchronized void open() {
    if (freeCount > 0 || openCount >= MAX_CONNECTIONS || isClosed) {
      return;
    }
    // A file system of Hadoop's may load classes of the job.
    DaemonThreads.start(
        DaemonThreads.ofTask("cairn-" + worker + "-files-" + (openCount + 1), this::serve));
    openCount++;
    freeCount++;
  }

  /** As {@link #open}, by a thread that goes on without it. */
  private void openNext() {
    try {
      open();
    } catch (CairnException e) {
      LOG.warn("no further storage connection to {}: {}", worker, e.getMessage());
    }
  }

  /** Answers requests until the connection ends. */
  void serve() {
    boolean isFree = true;
    boolean isConnected = false;
    try (DataChannel channel =
        DataChannel.connect(socket, token, timeoutMs, FileRequest.MAX_REQUEST_BYTES)) {
      byte[] hello = new byte[FrameHeader.BYTES];
      new FrameHeader(FrameKind.SERVE_FILES, 0, 0, 0, 0, 0, 0).write(hello, 0);
      channel.send(hello);
      isConnected = true;
      FileService service = new FileService(channel);
      while (true) {
        FrameHeader request = channel.receive(Integer.MAX_VALUE);
        begin();
        isFree = false;
        service.serve(request);
        end();
        isFree = true;
      }
    } catch (CairnException e) {
      if (!isConnected) {
        LOG.info("no storage connection to {}: {}", worker, e.getMessage());
      } else if (!e.isWorkerLost()) {
        LOG.warn("a storage connection to {} has ended: {}", worker, e.getMessage());
      }
    } finally {
      leave(isFree, isConnected);
    }
  }

  private synchronized void begin() {
    freeCount--;
    openNext();
  }

  private synchronized void end() {
    freeCount++;
  }

  private synchronized void leave(boolean wasFree, boolean wasConnected) {
    openCount--;
    freeCount -= wasFree ? 1 : 0;
    if (wasConnected) {
      // If the worker is gone, the new connection fails; else the next call of an instance opens
      // one.
      openNext();
    }
  }

  @Override
  public synchronized void close() {
    isClosed = true;
  }
}
