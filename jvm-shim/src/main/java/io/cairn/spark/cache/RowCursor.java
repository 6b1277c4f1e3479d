package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;

/**
 * A scan over one family: call {@link #next}, then read the regions. Asks the engine for nothing
 * before the first {@code next}.
 *
 * <p>Puts and removes of the same session between two {@code next} are allowed: a key is given at
 * most once, a key that nobody touches exactly once, a key that is touched meanwhile with any state
 * it had since the scan was opened. The regions are valid until the next {@code next} or write.
 * Using a cursor after its session ended is an error. {@link #close} frees early what the end of
 * the session frees anyway.
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
