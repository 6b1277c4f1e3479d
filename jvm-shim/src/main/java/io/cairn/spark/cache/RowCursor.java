package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;

/**
 * A scan over one family: call {@link #next}, then read key and value. It asks the engine for
 * nothing before the first {@code next}.
 *
 * <p>The session may put and remove between two calls of {@code next}. Each key is returned at most
 * once; a key that is not written meanwhile exactly once; a key that is, with any state it had
 * since the scan was opened. Key and value are valid until the next {@code next} or write. To use a
 * cursor after its session has ended is an error. {@link #close} frees early what the end of the
 * session frees anyway.
 */
public abstract class RowCursor implements AutoCloseable {
  public final ByteSpan key = new ByteSpan();
  public final ByteSpan value = new ByteSpan();

  RowCursor() {}

  /** Moves to the next row; false at the end, and from then on. */
  public abstract boolean next();

  @Override
  public abstract void close();
}
