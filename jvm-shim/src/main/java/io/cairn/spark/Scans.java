package io.cairn.spark;

import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.RowCursor;
import io.cairn.spark.codec.RowCodec;
import java.util.function.BiConsumer;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import scala.Option;

/** Opens the scans of one session: all rows, those of a prefix, those of a range. */
final class Scans {
  private final StoreSession session;
  private final BiConsumer<UnsafeRow, UnsafeRow> validate;

  /**
   * @param validate sees each pair before Spark does
   */
  Scans(StoreSession session, BiConsumer<UnsafeRow, UnsafeRow> validate) {
    this.session = session;
    this.validate = validate;
  }

  StateStoreIterator<UnsafeRowPair> all(StoreSession.OpenFamily open, boolean isEachValue) {
    return pairs(open, session.cache.scan(open.id()), isEachValue);
  }

  StateStoreIterator<UnsafeRowPair> prefix(
      StoreSession.OpenFamily open, UnsafeRow prefix, boolean isEachValue) {
    RowCodec codec = open.family().codec();
    Requirements.prefixScan(codec);
    byte[] from = codec.prefixBytes(prefix);
    return pairs(open, session.cache.range(open.id(), from, Bytes.successor(from)), isEachValue);
  }

  StateStoreIterator<UnsafeRowPair> range(
      StoreSession.OpenFamily open,
      Option<UnsafeRow> start,
      Option<UnsafeRow> end,
      boolean isEachValue) {
    RowCodec codec = open.family().codec();
    Requirements.rangeScan(codec, open.family().name());
    byte[] from = start.isEmpty() ? new byte[0] : codec.keyBytes(start.get());
    byte[] to = end.isEmpty() ? null : codec.keyBytes(end.get());
    return pairs(open, session.cache.range(open.id(), from, to), isEachValue);
  }

  /** Removes all rows of a range and says how many they were. */
  long remove(StoreSession.OpenFamily open, UnsafeRow begin, UnsafeRow end) {
    RowCodec codec = open.family().codec();
    Requirements.deleteRange(codec, open.family().name());
    byte[] from = codec.keyBytes(begin);
    long removed = 0;
    try (RowCursor cursor = session.cache.range(open.id(), from, codec.keyBytes(end))) {
      while (cursor.next()) {
        session.cache.remove(open.id(), cursor.key);
        removed++;
      }
    }
    return removed;
  }

  private StateStoreIterator<UnsafeRowPair> pairs(
      StoreSession.OpenFamily open, RowCursor cursor, boolean isEachValue) {
    return RowPairIterator.of(session, cursor, open.family().codec(), isEachValue, validate);
  }
}
