package io.cairn.spark;

import io.cairn.spark.cache.RowCursor;
import io.cairn.spark.codec.PairBuffer;
import io.cairn.spark.codec.RowCodec;
import io.cairn.spark.session.StoreSession;
import java.util.NoSuchElementException;
import java.util.function.BiConsumer;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.runtime.BoxedUnit;

/**
 * Iterates the rows of a scan: one pair per key, or one per value of a multi-value family.
 *
 * <p>A pair and its rows stay valid after writes of the session and after {@code hasNext}, which
 * reads the next pair: Spark's session windows and joins call it while they use the current one. So
 * there are two pairs, used alternately.
 */
final class RowPairIterator extends AbstractIterator<UnsafeRowPair> {
  private final StoreSession session;
  private final RowCursor cursor;
  private final RowCodec codec;
  private final boolean isEachValue;
  private final BiConsumer<UnsafeRow, UnsafeRow> validate;

  /** The pair that the last {@code next} returned, or the one that the next call returns. */
  private PairBuffer current;

  /** The pair before it. Both are made when they are needed: many scans return one row or none. */
  private PairBuffer other;

  private UnsafeRow listKey;
  private Iterator<UnsafeRow> values;
  private boolean isReady;
  private boolean isEnded;

  private RowPairIterator(
      StoreSession session,
      RowCursor cursor,
      RowCodec codec,
      boolean isEachValue,
      BiConsumer<UnsafeRow, UnsafeRow> validate) {
    this.session = session;
    this.cursor = cursor;
    this.codec = codec;
    this.isEachValue = isEachValue && codec.supportsManyValues();
    this.validate = validate;
  }

  /**
   * Wraps a cursor of a session.
   *
   * @param isEachValue whether a list becomes one pair per value, each with its key
   * @param validate receives each pair before Spark does
   */
  static StateStoreIterator<UnsafeRowPair> of(
      StoreSession session,
      RowCursor cursor,
      RowCodec codec,
      boolean isEachValue,
      BiConsumer<UnsafeRow, UnsafeRow> validate) {
    return new StateStoreIterator<>(
        new RowPairIterator(session, cursor, codec, isEachValue, validate),
        () -> {
          session.whileNoRowCall(cursor::close);
          return BoxedUnit.UNIT;
        });
  }

  @Override
  public boolean hasNext() {
    return isReady || !isEnded && read();
  }

  @Override
  public UnsafeRowPair next() {
    if (!isReady && (isEnded || !read())) {
      throw new NoSuchElementException("the scan has no more rows");
    }
    isReady = false;
    return current.pair;
  }

  // Every row of every scan passes through these methods: they are small, so that the compiler
  // can inline all of them in any order of compilation.

  private boolean read() {
    session.enter("read on");
    try {
      isReady = isEachValue ? nextValue() : nextRow();
    } finally {
      session.leave();
    }
    isEnded = !isReady;
    return isReady;
  }

  private boolean nextRow() {
    if (!cursor.next()) {
      return false;
    }
    PairBuffer buffer = swap();
    buffer.set(cursor.key, cursor.value);
    validate.accept(buffer.pair.key(), buffer.pair.value());
    return true;
  }

  private PairBuffer swap() {
    PairBuffer next = other == null ? new PairBuffer(codec) : other;
    other = current;
    current = next;
    return next;
  }

  private boolean nextValue() {
    while (values == null || !values.hasNext()) {
      if (!cursor.next()) {
        return false;
      }
      listKey = codec.decodeKey(cursor.key).copy();
      values = codec.decodeValues(cursor.key, cursor.value);
    }
    swap().pair.withRows(listKey, values.next().copy());
    return true;
  }
}
