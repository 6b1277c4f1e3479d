package io.cairn.spark.protocol;

/** A frame in an array that its writer reuses: valid until the writer begins the next frame. */
public interface FrameWriter {
  /**
   * Writes the header before the payload that was written. May be called again for the same
   * payload.
   */
  void finish(int kind, long session, long sequence, long applied);

  byte[] array();

  /** Where the frame begins in {@link #array()}. */
  int start();

  /** Bytes of the frame. */
  int length();
}
