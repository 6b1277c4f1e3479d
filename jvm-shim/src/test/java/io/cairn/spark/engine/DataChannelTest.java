package io.cairn.spark.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.Waits;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.protocol.FrameHeader;
import io.cairn.spark.protocol.FrameKind;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** One connection to a worker that answers late, never, or incompletely. */
class DataChannelTest {
  private static final String TOKEN = "secret";

  private Path folder;
  private Path socket;
  private ServerSocketChannel server;

  @BeforeEach
  void listen() throws IOException {
    folder = Files.createTempDirectory("cairn-ch-");
    socket = folder.resolve("s");
    server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    server.bind(UnixDomainSocketAddress.of(socket));
  }

  @AfterEach
  void end() throws IOException {
    server.close();
    Files.deleteIfExists(socket);
    Files.deleteIfExists(folder);
  }

  private interface Worker {
    void serve(SocketChannel channel) throws Exception;
  }

  /** Accepts a connection, then serves it. */
  private CompletableFuture<Void> worker(Worker then) {
    return CompletableFuture.runAsync(
        () -> {
          try (SocketChannel channel = server.accept()) {
            FrameHeader hello = readHeader(channel);
            assertEquals(FrameKind.HELLO, hello.kind());
            byte[] token = read(channel, hello.payloadBytes());
            assertEquals(TOKEN, new String(token));
            write(
                channel,
                new FrameHeader(FrameKind.HELLO | FrameKind.REPLY, 0, 0, 0, 0, 0, 0),
                new byte[0]);
            then.serve(channel);
          } catch (Exception e) {
            throw new IllegalStateException(e);
          }
        });
  }

  private static FrameHeader readHeader(SocketChannel channel) throws IOException {
    return FrameHeader.read(read(channel, FrameHeader.BYTES), 0);
  }

  private static byte[] read(SocketChannel channel, int bytes) throws IOException {
    ByteBuffer buffer = ByteBuffer.allocate(bytes);
    while (buffer.hasRemaining()) {
      if (channel.read(buffer) < 0) {
        throw new IOException("closed");
      }
    }
    return buffer.array();
  }

  private static void write(SocketChannel channel, FrameHeader header, byte[] payload)
      throws IOException {
    byte[] bytes = new byte[FrameHeader.BYTES + payload.length];
    header.write(bytes, 0);
    System.arraycopy(payload, 0, bytes, FrameHeader.BYTES, payload.length);
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    while (buffer.hasRemaining()) {
      channel.write(buffer);
    }
  }

  /** A frame larger than the socket's buffer must neither block forever nor be truncated. */
  @Test
  void largeFramesPassInBothDirections() throws Exception {
    byte[] large = new byte[8 << 20];
    large[large.length - 1] = 42;
    Thread task = Thread.currentThread();
    CompletableFuture<Void> worker =
        worker(
            channel -> {
              // A slow reader: the sender fills the socket's buffer first.
              Waits.untilIn(task, "DataChannel", "await");
              FrameHeader header = readHeader(channel);
              byte[] payload = read(channel, header.payloadBytes());
              write(channel, header, payload);
            });
    try (DataChannel channel = DataChannel.connect(socket, TOKEN, 10_000)) {
      byte[] frame = new byte[FrameHeader.BYTES + large.length];
      new FrameHeader(FrameKind.WRITES, 0, 1, 1, 0, 1, large.length).write(frame, 0);
      System.arraycopy(large, 0, frame, FrameHeader.BYTES, large.length);

      channel.send(frame, 0, frame.length);
      FrameHeader reply = channel.receive();

      assertEquals(large.length, reply.payloadBytes());
      assertEquals(42, channel.takePayload()[large.length - 1]);
      assertFalse(channel.isBroken());
    }
    worker.get(10, TimeUnit.SECONDS);
  }

  /** A damaged length must not take the executor's heap, nor be taken for another frame. */
  @Test
  void aFrameOverTheLimitBreaksTheChannelBeforeItsBytesAreRead() throws Exception {
    CompletableFuture<Void> worker =
        worker(
            channel -> {
              readHeader(channel);
              FrameHeader reply =
                  new FrameHeader(FrameKind.GET | FrameKind.REPLY, 0, 1, 1, 0, 0, 1025);
              write(channel, reply, new byte[1025]);
            });
    try (DataChannel channel = DataChannel.connect(socket, TOKEN, 10_000, 1024)) {
      byte[] frame = new byte[FrameHeader.BYTES];
      new FrameHeader(FrameKind.GET, 0, 1, 1, 0, 0, 0).write(frame, 0);
      channel.send(frame);

      CairnException refused = assertThrows(CairnException.class, channel::receive);

      assertTrue(refused.getMessage().contains("1025 bytes, over the limit of 1024"));
      assertTrue(channel.isBroken());
    }
    worker.get(10, TimeUnit.SECONDS);
  }

  /**
   * Spark cancels tasks by interrupt: the reply must still arrive, the channel stay usable, and the
   * flag be restored.
   */
  @Test
  void anInterruptWhileWaitingLosesNeitherReplyNorFlag() throws Exception {
    CountDownLatch isWaiting = new CountDownLatch(1);
    CountDownLatch wasInterrupted = new CountDownLatch(1);
    CompletableFuture<Void> worker =
        worker(
            channel -> {
              for (int request = 0; request < 2; request++) {
                FrameHeader header = readHeader(channel);
                isWaiting.countDown();
                wasInterrupted.await();
                write(channel, header, new byte[header.payloadBytes()]);
              }
            });
    try (DataChannel channel = DataChannel.connect(socket, TOKEN, 10_000)) {
      byte[] frame = new byte[FrameHeader.BYTES];
      new FrameHeader(FrameKind.GET, 0, 1, 1, 0, 0, 0).write(frame, 0);
      Thread task = Thread.currentThread();
      CompletableFuture.runAsync(
          () -> {
            try {
              isWaiting.await();
            } catch (InterruptedException e) {
              throw new IllegalStateException(e);
            }
            task.interrupt();
            wasInterrupted.countDown();
          });

      channel.send(frame, 0, frame.length);
      assertEquals(FrameKind.GET, channel.receive().kind());
      assertTrue(Thread.currentThread().isInterrupted(), "the interrupt was swallowed");

      channel.send(frame, 0, frame.length);
      assertEquals(FrameKind.GET, channel.receive().kind());
      assertTrue(Thread.interrupted(), "the interrupt was swallowed");
      assertFalse(channel.isBroken());
    }
    worker.get(10, TimeUnit.SECONDS);
  }

  /** After replies that came soon the thread polls; a late one must not be lost, nor time out. */
  @Test
  void repliesThatComeSoonAndLateArriveInOrder() throws Exception {
    int soon = 1000;
    Thread task = Thread.currentThread();
    CompletableFuture<Void> worker =
        worker(
            channel -> {
              for (int request = 0; request <= soon; request++) {
                FrameHeader header = readHeader(channel);
                if (request == soon) {
                  Waits.untilIn(task, "DataChannel", "await"); // it does not poll any more
                }
                write(channel, header, new byte[0]);
              }
              channel.read(ByteBuffer.allocate(1)); // until the channel is closed
            });
    try (DataChannel channel = DataChannel.connect(socket, TOKEN, 400)) {
      byte[] frame = new byte[FrameHeader.BYTES];
      for (int request = 0; request <= soon; request++) {
        new FrameHeader(FrameKind.GET, 0, 1, request, 0, 0, 0).write(frame, 0);
        channel.send(frame);

        assertEquals(request, channel.receive().sequence());
      }
      Thread.currentThread().interrupt();
      CairnException error = assertThrows(CairnException.class, channel::receive);

      assertTrue(Thread.interrupted(), "the interrupt was swallowed");
      assertEquals("CAIRN_ENGINE_TIMEOUT", error.code());
    }
    worker.get(10, TimeUnit.SECONDS);
  }

  /** The error of a worker that hangs names the setting, and the channel is not used again. */
  @Test
  void aMissingReplyEndsInATimeout() throws Exception {
    CountDownLatch done = new CountDownLatch(1);
    CompletableFuture<Void> worker = worker(channel -> done.await());
    try (DataChannel channel = DataChannel.connect(socket, TOKEN, 200)) {
      CairnException error = assertThrows(CairnException.class, channel::receive);

      assertEquals("CAIRN_ENGINE_TIMEOUT", error.code());
      assertTrue(error.getMessage().contains("requestTimeoutMs"), error.getMessage());
      assertTrue(channel.isBroken());
    }
    done.countDown();
    worker.get(10, TimeUnit.SECONDS);
  }

  @Test
  void aWorkerThatEndsInTheMiddleOfAFrameIsLost() throws Exception {
    CompletableFuture<Void> worker =
        worker(
            channel -> {
              byte[] half = new byte[FrameHeader.BYTES + 10];
              new FrameHeader(FrameKind.GET | FrameKind.REPLY, 0, 1, 1, 0, 1, 100).write(half, 0);
              channel.write(ByteBuffer.wrap(half));
            });
    try (DataChannel channel = DataChannel.connect(socket, TOKEN, 10_000)) {
      CairnException error = assertThrows(CairnException.class, channel::receive);

      assertTrue(error.isWorkerLost(), error.getMessage());
      assertTrue(channel.isBroken());
    }
    worker.get(10, TimeUnit.SECONDS);
  }

  /** The pool keeps working channels and drops broken ones. */
  @Test
  void aBrokenChannelIsNotUsedAgain() throws Exception {
    CompletableFuture<Void> first = worker(channel -> read(channel, 1));
    try (ChannelPool pool = new ChannelPool(socket, TOKEN, 10_000)) {
      DataChannel channel = pool.acquire();
      pool.release(channel);
      assertEquals(channel, pool.acquire());
      channel.abandon();
      pool.release(channel);
      assertThrows(ExecutionException.class, () -> first.get(10, TimeUnit.SECONDS));
      CompletableFuture<Void> second = worker(other -> read(other, 1));

      DataChannel another = pool.acquire();

      assertFalse(another == channel);
      another.close();
      assertThrows(ExecutionException.class, () -> second.get(10, TimeUnit.SECONDS));
    }
  }

  /** Connects where direct memory is short; prints what it gets and the files that stay open. */
  static final class ShortOfMemory {
    public static void main(String[] arguments) throws IOException {
      connect(arguments[0]); // loads classes, which opens files
      long before = openFiles();
      String error = connect(arguments[0]);
      System.out.println(error + ", files left open: " + (openFiles() - before));
    }

    private static String connect(String socket) {
      try {
        return DataChannel.connect(Path.of(socket), TOKEN, 1_000).toString();
      } catch (OutOfMemoryError e) {
        return "OutOfMemoryError";
      }
    }

    private static long openFiles() throws IOException {
      try (Stream<Path> files = Files.list(Path.of("/proc/self/fd"))) {
        return files.count();
      }
    }
  }

  /** Each attempt of a task would leave a socket and a selector open. */
  @Test
  void aConnectionWithoutMemoryLeavesNothingOpen() throws Exception {
    Process process =
        ChildJvm.start("-XX:MaxDirectMemorySize=64k", ShortOfMemory.class, socket.toString());

    String output = new String(process.getInputStream().readAllBytes());

    assertTrue(output.contains("OutOfMemoryError, files left open: 0"), output);
  }
}
