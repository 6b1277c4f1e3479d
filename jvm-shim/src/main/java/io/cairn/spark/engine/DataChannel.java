package io.cairn.spark.engine;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.errors.OpenFiles;
import io.cairn.spark.files.FileService;
import io.cairn.spark.protocol.FrameBytes;
import io.cairn.spark.protocol.FrameHeader;
import io.cairn.spark.protocol.FrameKind;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.SocketTimeoutException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One connection to a worker's Unix socket, which sends and receives whole frames, each within a
 * time limit.
 *
 * <p>The interrupt of a cancelled task would close a blocking channel, even during a commit or an
 * abort. So the channel does not block: a selector waits, with the interrupt flag cleared and then
 * restored. After an interrupt a call ends within {@link Cancellation#COMMIT_GRACE_MS}. One caller
 * at a time.
 */
final class DataChannel implements AutoCloseable, FileService.Connection {
  private static final Logger LOG = LoggerFactory.getLogger(DataChannel.class);
  private static final int CHUNK_BYTES = 128 << 10;
  private static final Consumer<SelectionKey> READY_KEYS_ARE_IGNORED = ready -> {};

  private final SocketChannel socket;
  private final Selector selector;
  private final SelectionKey key;
  private final ByteBuffer out = ByteBuffer.allocateDirect(CHUNK_BYTES);
  private final ByteBuffer in = ByteBuffer.allocateDirect(CHUNK_BYTES);
  private final byte[] headerBytes = new byte[FrameHeader.BYTES];
  private final ReplyPolling polling = new ReplyPolling();
  private final int maxPayloadBytes;
  private final int timeoutMs;

  /** The limit of the call in progress. */
  private int limitMs;

  /** When an interrupt was noticed during the call in progress; 0: there was none. */
  private long interruptedNs;

  private byte[] payload = new byte[0];
  private volatile boolean isBroken;

  private DataChannel(
      SocketChannel socket,
      Selector selector,
      SelectionKey key,
      int timeoutMs,
      int maxPayloadBytes) {
    this.maxPayloadBytes = maxPayloadBytes;
    this.socket = socket;
    this.selector = selector;
    this.key = key;
    this.timeoutMs = timeoutMs;
    in.limit(0);
  }

  /** Connects and authenticates. */
  static DataChannel connect(Path path, String token, int timeoutMs) {
    return connect(path, token, timeoutMs, FrameHeader.MAX_REPLY_BYTES);
  }

  /**
   * Connects, for frames with payloads of a limited size.
   *
   * @param maxPayloadBytes a larger frame breaks the channel, before memory is allocated for it
   */
  static DataChannel connect(Path path, String token, int timeoutMs, int maxPayloadBytes) {
    boolean interrupted = Thread.interrupted();
    SocketChannel socket = null;
    Selector selector = null;
    try {
      socket = SocketChannel.open(StandardProtocolFamily.UNIX);
      socket.configureBlocking(false);
      selector = Selector.open();
      SelectionKey key = socket.register(selector, 0);
      DataChannel channel = new DataChannel(socket, selector, key, timeoutMs, maxPayloadBytes);
      interrupted |= channel.open(path);
      channel.greet(token);
      return channel;
    } catch (IOException e) {
      closeQuietly(socket, selector);
      if (OpenFiles.areTooMany(e)) {
        throw OpenFiles.error("no connection to the engine", e);
      }
      throw CairnException.workerLost(
          "no connection to the engine at " + path + ": " + e.getMessage(), e);
    } catch (RuntimeException | Error e) {
      // Also if there is no memory for the buffers.
      closeQuietly(socket, selector);
      throw e;
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** Returns whether the thread was interrupted meanwhile. */
  private boolean open(Path path) throws IOException {
    boolean interrupted = false;
    if (!socket.connect(UnixDomainSocketAddress.of(path))) {
      long deadline = deadline(false);
      while (!socket.finishConnect()) {
        interrupted |= await(SelectionKey.OP_CONNECT, deadline);
      }
    }
    return interrupted;
  }

  private void greet(String token) {
    byte[] bytes = token.getBytes(StandardCharsets.UTF_8);
    byte[] frame = new byte[FrameHeader.BYTES + bytes.length];
    new FrameHeader(FrameKind.HELLO, 0, 0, 0, 0, 0, bytes.length).write(frame, 0);
    System.arraycopy(bytes, 0, frame, FrameHeader.BYTES, bytes.length);
    send(frame, 0, frame.length);
    FrameHeader reply = receive();
    if (reply.kind() != (FrameKind.HELLO | FrameKind.REPLY)) {
      throw CairnException.protocol(
          "the engine answered a greeting with kind 0x" + Integer.toHexString(reply.kind()));
    }
  }

  @Override
  public void send(byte[] frame) {
    send(frame, 0, frame.length);
  }

  /** Sends a frame that is in one array. */
  void send(byte[] frame, int start, int length) {
    send(FrameBytes.of(frame, start, length));
  }

  /** Sends a frame; waits while the socket is full. After a failure the channel is broken. */
  void send(FrameBytes frame) {
    send(frame, true);
  }

  /** As {@link #send}, but the last part of the frame may wait for the next frame. */
  void sendWithNext(FrameBytes frame) {
    send(frame, false);
  }

  private void send(FrameBytes frame, boolean flushes) {
    boolean interrupted = Thread.interrupted();
    try {
      long deadline = deadline(interrupted);
      for (int region = 0; region < frame.count(); region++) {
        byte[] array = frame.array(region);
        int from = frame.start(region);
        int end = from + frame.length(region);
        while (from < end) {
          int part = Math.min(out.remaining(), end - from);
          out.put(array, from, part);
          from += part;
          if (!out.hasRemaining()) {
            interrupted |= sendOut(deadline);
          }
        }
      }
      if (flushes) {
        interrupted |= sendOut(deadline);
      }
    } catch (IOException e) {
      throw lost("the connection to the engine broke while sending", e);
    } catch (RuntimeException | Error e) {
      isBroken = true;
      throw e;
    } finally {
      restore(interrupted);
    }
  }

  /** Sends what is in {@link #out}; returns whether the thread was interrupted meanwhile. */
  private boolean sendOut(long deadline) throws IOException {
    boolean interrupted = false;
    out.flip();
    while (out.hasRemaining()) {
      if (socket.write(out) == 0) {
        interrupted |= await(SelectionKey.OP_WRITE, deadline);
      }
    }
    out.clear();
    return interrupted;
  }

  /** Waits until a reply begins to arrive; false if it has not after this time. */
  boolean awaitReply(int waitMs) {
    boolean interrupted = Thread.interrupted();
    try {
      long deadline = deadline(waitMs, interrupted);
      while (!in.hasRemaining() && !readAvailable()) {
        if (System.nanoTime() >= deadline) {
          return false;
        }
        interrupted |= await(SelectionKey.OP_READ, deadline);
      }
      return true;
    } catch (SocketTimeoutException e) {
      return false;
    } catch (IOException e) {
      throw lost("the connection to the engine broke while waiting for a reply", e);
    } finally {
      restore(interrupted);
    }
  }

  /** Receives a frame within the limit of a read. */
  @Override
  public FrameHeader receive() {
    return receive(timeoutMs);
  }

  /**
   * Waits for a whole frame and returns its header; {@link #takePayload} returns its payload. After
   * a failure the channel is broken.
   */
  FrameHeader receive(int waitMs) {
    boolean interrupted = Thread.interrupted();
    try {
      long deadline = deadline(waitMs, interrupted);
      if (!in.hasRemaining()) {
        interrupted |= awaitFirst(deadline);
      }
      interrupted |= fill(headerBytes, FrameHeader.BYTES, deadline);
      FrameHeader header = FrameHeader.read(headerBytes, 0);
      if (header.payloadBytes() > maxPayloadBytes) {
        throw CairnException.protocol(
            "the engine sent a frame of "
                + header.payloadBytes()
                + " bytes, over the limit of "
                + maxPayloadBytes);
      }
      if (payload == null
          || payload.length < header.payloadBytes()
          || payload.length > CHUNK_BYTES * 16) {
        payload = new byte[Math.max(1024, header.payloadBytes())];
      }
      interrupted |= fill(payload, header.payloadBytes(), deadline);
      return header;
    } catch (IOException e) {
      throw lost("the connection to the engine broke while waiting for a reply", e);
    } catch (RuntimeException | Error e) {
      // Even if the heap is full: the rest of the reply is still in the socket.
      isBroken = true;
      throw e;
    } finally {
      restore(interrupted);
    }
  }

  @Override
  public byte[] payload() {
    return payload;
  }

  /** Returns the payload of the last frame; the caller owns it. */
  byte[] takePayload() {
    byte[] taken = payload;
    payload = null;
    return taken;
  }

  /** Uses this array, which {@link #takePayload} returned before, for the next payload. */
  void reusePayload(byte[] array) {
    payload = array;
  }

  private boolean fill(byte[] into, int bytes, long deadline) throws IOException {
    boolean interrupted = false;
    int filled = 0;
    while (filled < bytes) {
      if (!in.hasRemaining()) {
        if (!readAvailable()) {
          interrupted |= await(SelectionKey.OP_READ, deadline);
        }
        continue;
      }
      int part = Math.min(in.remaining(), bytes - filled);
      in.get(into, filled, part);
      filled += part;
    }
    return interrupted;
  }

  /** Reads into {@link #in}, which is empty; returns whether there was anything. */
  private boolean readAvailable() throws IOException {
    in.clear();
    int read = socket.read(in);
    in.flip();
    if (read < 0) {
      throw new IOException("the engine closed it");
    }
    return read > 0;
  }

  /** Waits for the first bytes of a frame: polls for them or sleeps; as {@link #await}. */
  private boolean awaitFirst(long deadline) throws IOException {
    long began = System.nanoTime();
    long pollNs = polling.pollNs();
    boolean isHere = false;
    while (!isHere && System.nanoTime() - began < pollNs) {
      isHere = readAvailable();
    }
    boolean interrupted = !isHere && await(SelectionKey.OP_READ, deadline);
    polling.noteWait(System.nanoTime() - began);
    return interrupted;
  }

  /** Waits for the socket; returns whether the thread was interrupted meanwhile. */
  private boolean await(int operation, long deadline) throws IOException {
    boolean interrupted = noteInterrupt(Thread.interrupted());
    long now = System.nanoTime();
    long leftMs = TimeUnit.NANOSECONDS.toMillis(deadline - now);
    if (interruptedNs != 0) {
      long graceMs =
          Cancellation.COMMIT_GRACE_MS - TimeUnit.NANOSECONDS.toMillis(now - interruptedNs);
      if (graceMs <= 0 && leftMs > 0) {
        restore(interrupted);
        throw new InterruptedIOException("the task was cancelled");
      }
      leftMs = Math.min(leftMs, graceMs);
    }
    if (leftMs <= 0) {
      restore(interrupted);
      throw new SocketTimeoutException("no answer within " + limitMs + " ms");
    }
    key.interestOps(operation);
    selector.select(READY_KEYS_ARE_IGNORED, leftMs);
    return interrupted | noteInterrupt(Thread.interrupted());
  }

  private boolean noteInterrupt(boolean interrupted) {
    if (interrupted && interruptedNs == 0) {
      interruptedNs = System.nanoTime();
    }
    return interrupted;
  }

  private static void restore(boolean interrupted) {
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  private CairnException lost(String what, IOException cause) {
    isBroken = true;
    if (cause instanceof SocketTimeoutException) {
      return CairnException.of(
          ErrorKind.RETRY,
          "CAIRN_ENGINE_TIMEOUT",
          what + ": " + cause.getMessage(),
          "raise spark.sql.streaming.stateStore.cairn.requestTimeoutMs, or find out what"
              + " keeps the engine busy",
          cause);
    }
    if (cause instanceof InterruptedIOException) {
      return Cancellation.error("a request to the engine");
    }
    return CairnException.workerLost(what + ": " + cause.getMessage(), cause);
  }

  private long deadline(boolean interrupted) {
    return deadline(timeoutMs, interrupted);
  }

  /** When a call that begins now must end; {@code interrupted} before it. */
  private long deadline(int waitMs, boolean interrupted) {
    limitMs = waitMs;
    interruptedNs = 0;
    noteInterrupt(interrupted);
    return System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs);
  }

  /** Whether it cannot be used again: after a failure, or with a part of a frame unsent. */
  @Override
  public boolean isBroken() {
    return isBroken || out.position() > 0;
  }

  /** Marks the channel as broken, because it may still receive a reply that nobody reads. */
  void abandon() {
    isBroken = true;
  }

  @Override
  public void close() {
    isBroken = true;
    closeQuietly(socket, selector);
  }

  private static void closeQuietly(SocketChannel socket, Selector selector) {
    try {
      if (socket != null) {
        socket.close();
      }
    } catch (IOException e) {
      LOG.debug("closing a socket", e);
    }
    try {
      if (selector != null) {
        selector.close();
      }
    } catch (IOException e) {
      LOG.debug("closing a selector", e);
    }
  }
}
