package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;

/**
 * A scan over one family: call {@link #next}, then read key and value. The first {@code next} sends
 * the first request to the engine.
 *
 * <p>It returns the rows that existed when it was opened, each once; later writes of the session
 * change nothing in it. Key and value are valid until the next {@code next} or write. It is an
 * error to use a cursor after its session has ended. {@link #close} frees memory before the end of
 * the session does.
 */
public abstract class RowCursor implements AutoCloseable {
  public final ByteSpan key = new ByteSpan();
  public final ByteSpan value = new ByteSpan();

  RowCursor() {}

  /** Moves to the next row; false at the end, and in every later call. */
  public abstract boolean next();

  @Override
  public abstract void close();
}
