package io.cairn.spark.engine;

import io.cairn.spark.protocol.FrameBytes;
import io.cairn.spark.protocol.FrameHeader;
import java.util.ArrayList;
import java.util.List;

/** Copies of a session's spilled frames, as long as they fit, to send them again. */
final class ReplayBuffer {
  /** Small compared with the cache, and more than most sessions spill. */
  private static final int MAX_BYTES = 8 << 20;

  private final List<byte[]> frames = new ArrayList<>();
  private long bytes;
  private long rows;

  /** Copies a frame. Beyond the bound no frame is kept. */
  void add(FrameBytes frame, int rowCount) {
    bytes += frame.length();
    rows += rowCount;
    if (isComplete()) {
      frames.add(frame.toArray());
    } else {
      frames.clear();
    }
  }

  /** Whether the buffer still has every frame that was added. */
  boolean isComplete() {
    return bytes <= MAX_BYTES;
  }

  int frameCount() {
    return frames.size();
  }

  /** Rows of all frames that were added. */
  long rowCount() {
    return rows;
  }

  /** Sends all frames with the id of another session. */
  void send(DataChannel channel, long session) {
    for (byte[] frame : frames) {
      FrameHeader.setSession(frame, session);
      channel.send(frame, 0, frame.length);
    }
  }

  /** Frees the frames. */
  void clear() {
    frames.clear();
  }
}
