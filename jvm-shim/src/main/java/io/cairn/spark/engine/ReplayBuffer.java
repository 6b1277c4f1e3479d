package io.cairn.spark.engine;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Copies of a session's spill, for another worker, as long as they are few. */
final class ReplayBuffer {
  /** Little beside the cache, and what most spills stay below. */
  private static final int MAX_BYTES = 8 << 20;

  /** Where a frame's header has the session. */
  private static final int SESSION_AT = 8;

  private final List<byte[]> frames = new ArrayList<>();
  private long bytes;

  /** Keeps a frame; beyond the bound none of all. */
  void add(byte[] array, int start, int length) {
    bytes += length;
    if (bytes <= MAX_BYTES) {
      frames.add(Arrays.copyOfRange(array, start, start + length));
    } else {
      frames.clear();
    }
  }

  int count() {
    return frames.size();
  }

  void clear() {
    frames.clear();
    bytes = 0;
  }

  /** Sends all of them, as a session's of another number. */
  void send(DataChannel channel, long session) {
    for (byte[] frame : frames) {
      ByteBuffer.wrap(frame).order(ByteOrder.LITTLE_ENDIAN).putLong(SESSION_AT, session);
      channel.send(frame, 0, frame.length);
    }
  }
}
