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
  private final PairBuffer[] buffers;
  private final boolean isEachValue;
  private final BiConsumer<UnsafeRow, UnsafeRow> validate;
  private final UnsafeRowPair[] pairs = {
    new UnsafeRowPair(null, null), new UnsafeRowPair(null, null)
  };
  private int bufferIndex;
  private int pairIndex;
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
    this.buffers = new PairBuffer[] {new PairBuffer(codec), new PairBuffer(codec)};
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
    if (!isReady && !isEnded) {
      session.enter("read on");
      try {
        isReady = advance();
        isEnded = !isReady;
      } finally {
        session.leave();
      }
    }
    return isReady;
  }

  @Override
  public UnsafeRowPair next() {
    if (!hasNext()) {
      throw new NoSuchElementException("the scan has no more rows");
    }
    isReady = false;
    return pairs[pairIndex];
  }

  private boolean advance() {
    if (values != null && values.hasNext()) {
      return set(listKey, values.next().copy());
    }
    values = null;
    while (cursor.next()) {
      bufferIndex ^= 1;
      PairBuffer buffer = buffers[bufferIndex];
      UnsafeRow key = buffer.key(cursor.key);
      if (!isEachValue) {
        UnsafeRow value = buffer.value(cursor.value);
        validate.accept(key, value);
        return set(key, value);
      }
      listKey = key;
      values = codec.decodeValues(cursor.value);
      if (values.hasNext()) {
        return set(key, values.next().copy());
      }
    }
    return false;
  }

  private boolean set(UnsafeRow key, UnsafeRow value) {
    pairIndex ^= 1;
    pairs[pairIndex].withRows(key, value);
    return true;
  }
}
