package io.cairn.spark.protocol;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** A writer keeps its array for the next frame, but not a large one, and none once released. */
class BatchWriterTest {
  private static final int LARGE_BYTES = 5 << 20;

  private final BatchWriter writer = new BatchWriter();

  private void write(byte[] cell) {
    writer.begin(1);
    writer.oneBinary(cell);
    writer.finish(FrameKind.GET, 1, 1, 0);
  }

  /** The frame of one large row stayed in memory until the next frame was complete. */
  @Test
  void theArrayOfALargeFrameIsFreedAtTheNextFrame() {
    write(new byte[LARGE_BYTES]);
    assertTrue(writer.array().length > LARGE_BYTES);

    writer.begin(1);

    assertTrue(writer.array().length < LARGE_BYTES);
    assertTrue(writer.array() == writer.frame().array(0));
  }

  @Test
  void aReleasedWriterHasNoFrameAndCanBeginAnother() {
    write(new byte[1 << 10]);
    byte[] before = writer.frame().toArray();

    writer.release();

    assertEquals(0, writer.array().length);
    assertEquals(0, writer.frame().length());
    write(new byte[1 << 10]);
    assertEquals(before.length, writer.frame().length());
  }
}
