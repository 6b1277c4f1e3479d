package io.cairn.spark;

import io.cairn.spark.cache.RowCursor;
import io.cairn.spark.codec.PairBuffer;
import io.cairn.spark.codec.RowCodec;
import java.util.NoSuchElementException;
import java.util.function.BiConsumer;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.runtime.BoxedUnit;

/**
 * Rows of a scan as Spark iterates them: one pair a key, or one a value of multi-value families.
 *
 * <p>The pair and its rows are reused; they stay valid across writes of the session and across
 * {@code hasNext}, which looks one pair ahead: Spark's session windows and joins ask it while they
 * hold the pair before. Hence two of each, used in turn.
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
  private int bufferTurn;
  private int pairTurn;
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
    this.buffers = new PairBuffer[] {codec.pairBuffer(), codec.pairBuffer()};
    this.isEachValue = isEachValue && codec.supportsManyValues();
    this.validate = validate;
  }

  /**
   * Wraps a cursor of a session.
   *
   * @param isEachValue whether a list gives one pair a value, its key repeated
   * @param validate sees each pair before Spark does
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
    return pairs[pairTurn];
  }

  private boolean advance() {
    if (values != null && values.hasNext()) {
      return give(listKey, values.next().copy());
    }
    values = null;
    while (cursor.next()) {
      bufferTurn ^= 1;
      PairBuffer buffer = buffers[bufferTurn];
      UnsafeRow key = buffer.key(cursor.key);
      if (!isEachValue) {
        UnsafeRow value = buffer.value(cursor.value);
        validate.accept(key, value);
        return give(key, value);
      }
      listKey = key;
      values = codec.decodeValues(cursor.value);
      if (values.hasNext()) {
        return give(key, values.next().copy());
      }
    }
    return false;
  }

  private boolean give(UnsafeRow key, UnsafeRow value) {
    pairTurn ^= 1;
    pairs[pairTurn].withRows(key, value);
    return true;
  }
}
