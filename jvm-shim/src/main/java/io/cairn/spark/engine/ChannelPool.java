package io.cairn.spark.engine;

import java.nio.file.Path;
import java.util.ArrayDeque;

/**
 * Connections to one worker: as many as sessions run at once, kept for the next ones. Thread-safe.
 */
final class ChannelPool implements AutoCloseable {
  private final Path socket;
  private final String token;
  private final int timeoutMs;
  private final ArrayDeque<DataChannel> idle = new ArrayDeque<>();
  private boolean closed;

  ChannelPool(Path socket, String token, int timeoutMs) {
    this.socket = socket;
    this.token = token;
    this.timeoutMs = timeoutMs;
  }

  DataChannel take() {
    synchronized (this) {
      DataChannel channel = idle.pollLast();
      if (channel != null) {
        return channel;
      }
    }
    return DataChannel.connect(socket, token, timeoutMs);
  }

  /** Takes a channel back; a broken one is closed, its session alone having failed. */
  void give(DataChannel channel) {
    synchronized (this) {
      if (!closed && !channel.isBroken()) {
        idle.addLast(channel);
        return;
      }
    }
    channel.close();
  }

  @Override
  public synchronized void close() {
    closed = true;
    for (DataChannel channel : idle) {
      channel.close();
    }
    idle.clear();
  }
}
