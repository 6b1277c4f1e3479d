package io.cairn.spark.engine;

import java.nio.file.Path;
import java.util.ArrayDeque;

/** The connections to one worker: one per running session, reused by later ones. Thread-safe. */
final class ChannelPool implements AutoCloseable {
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

  DataChannel acquire() {
    DataChannel channel;
    synchronized (this) {
      channel = idle.pollLast();
    }
    if (channel == null) {
      channel = DataChannel.connect(socket, token, timeoutMs);
    }
    ReplyPolling.sessionBegins();
    return channel;
  }

  /** Takes back a channel of {@link #acquire}; a broken one is closed. */
  void release(DataChannel channel) {
    ReplyPolling.sessionEnds();
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
