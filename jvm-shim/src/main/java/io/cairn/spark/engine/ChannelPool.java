package io.cairn.spark.engine;

import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.concurrent.atomic.AtomicInteger;

/** The connections to one worker: one per running session, reused by later ones. Thread-safe. */
final class ChannelPool implements AutoCloseable {
  private static final int CORES = Runtime.getRuntime().availableProcessors();

  /** Channels of all pools of this JVM that sessions have. */
  private static final AtomicInteger IN_USE = new AtomicInteger();

  private final Path socket;
  private final String token;
  private final int timeoutMs;
  private final ArrayDeque<DataChannel> idle = new ArrayDeque<>();
  private boolean isClosed;

  ChannelPool(Path socket, String token, int timeoutMs) {
    this.socket = socket;
    this.token = token;
    this.timeoutMs = timeoutMs;
  }

  /** Whether each session that has a channel can use two cores: its thread's and a worker's. */
  static boolean leavesCores() {
    return 2 * IN_USE.get() <= CORES;
  }

  DataChannel acquire() {
    DataChannel channel;
    synchronized (this) {
      channel = idle.pollLast();
    }
    if (channel == null) {
      channel = DataChannel.connect(socket, token, timeoutMs);
    }
    IN_USE.incrementAndGet();
    return channel;
  }

  /** Returns a channel, once, to the pool; a broken one is closed. */
  void release(DataChannel channel) {
    IN_USE.decrementAndGet();
    synchronized (this) {
      if (!isClosed && !channel.isBroken()) {
        idle.addLast(channel);
        return;
      }
    }
    channel.close();
  }

  @Override
  public synchronized void close() {
    isClosed = true;
    for (DataChannel channel : idle) {
      channel.close();
    }
    idle.clear();
  }
}
