package io.cairn.spark.engine;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.commit;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.CairnStateStoreProvider;
import io.cairn.spark.StoreFixture;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.protocol.FrameHeader;
import io.cairn.spark.protocol.FrameKind;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** A container at its limit of threads: the task fails, Spark retries it, and nothing is left. */
@Timeout(60)
class ThreadShortageTest {
  private static final String TOKEN = "secret";

  @TempDir Path folder;

  private final AtomicInteger startCount = new AtomicInteger();

  @AfterEach
  void giveThreads() {
    DaemonThreads.system = Thread::new;
  }

  /** Lets the system refuse threads with this part in their name; counts the others. */
  private void refuse(String part) {
    DaemonThreads.system =
        work ->
            new Thread(work) {
              @Override
              public void start() {
                if (getName().contains(part)) {
                  throw new OutOfMemoryError("unable to create native thread");
                }
                startCount.incrementAndGet();
                super.start();
              }
            };
  }

  private static void assertRefused(CairnStateStoreProvider provider) {
    Throwable error =
        assertThrows(Throwable.class, () -> provider.getStore(0, NO_ID, false, false));
    String text = StoreFixture.chain(error);
    assertTrue(text.contains("[CAIRN_WORKER_START] the system did not start thread"), text);
    assertTrue(text.contains("unable to create native thread"), text);
  }

  /** Otherwise every later task of the executor waits for a start that nobody makes. */
  @Test
  void aWorkerStartsWhenThereAreThreadsAgain() throws IOException {
    try (StoreFixture fixture = new StoreFixture().withOwnWorker()) {
      CairnStateStoreProvider provider = fixture.provider();
      refuse("-start");
      assertRefused(provider);
      assertRefused(provider);

      giveThreads();

      commit(provider, 0, NO_ID, 1);
    }
  }

  /** Each retry would leave a Python process. */
  @Test
  void aProcessWhoseOutputNobodyReadsIsEnded() throws Exception {
    for (String thread : new String[] {"worker-0-output", "worker-0-log"}) {
      try (StoreFixture fixture = new StoreFixture().withOwnWorker()) {
        refuse(thread);

        assertRefused(fixture.provider());

        for (ProcessHandle left : fixture.workers()) {
          left.onExit().get(10, TimeUnit.SECONDS);
        }
      }
    }
  }

  /** The file systems of the shim would stay out of the worker's reach. */
  @Test
  void aStorageConnectionIsOpenedWhenThereAreThreadsAgain() {
    StorageConnections connections =
        new StorageConnections("w", folder.resolve("none"), TOKEN, 1_000);
    refuse("cairn-w-files");
    assertThrows(CairnException.class, connections::open);

    refuse("no thread");
    connections.open();

    assertEquals(1, startCount.get());
  }

  /** The request of the worker needs no further connection. */
  @Test
  void aRequestIsAnsweredWithoutThreadForTheNextConnection() throws Exception {
    Path socket = folder.resolve("s");
    try (ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
      server.bind(UnixDomainSocketAddress.of(socket));
      StorageConnections connections = new StorageConnections("w", socket, TOKEN, 10_000);
      connections.open();
      try (SocketChannel channel = server.accept()) {
        assertEquals(FrameKind.HELLO, receive(channel).kind());
        send(channel, FrameKind.HELLO | FrameKind.REPLY, "");
        assertEquals(FrameKind.SERVE_FILES, receive(channel).kind());
        refuse("cairn-w-files");

        send(channel, FrameKind.FILE_STATUS, "/a");

        assertEquals(FrameKind.ERROR, receive(channel).kind(), "of a file system without number");
        refuse("no thread");
      }
      // Its successor is counted once.
      try (SocketChannel next = server.accept()) {
        assertEquals(FrameKind.HELLO, receive(next).kind());
        connections.close();
      }
      assertEquals(1, startCount.get());
    }
  }

  private static FrameHeader receive(SocketChannel channel) throws IOException {
    FrameHeader header = FrameHeader.read(read(channel, FrameHeader.BYTES), 0);
    read(channel, header.payloadBytes());
    return header;
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

  private static void send(SocketChannel channel, int kind, String payload) throws IOException {
    byte[] bytes = payload.getBytes(StandardCharsets.UTF_8);
    byte[] frame = new byte[FrameHeader.BYTES + bytes.length];
    new FrameHeader(kind, 0, Integer.MAX_VALUE, 1, 0, 0, bytes.length).write(frame, 0);
    System.arraycopy(bytes, 0, frame, FrameHeader.BYTES, bytes.length);
    channel.write(ByteBuffer.wrap(frame));
  }
}
