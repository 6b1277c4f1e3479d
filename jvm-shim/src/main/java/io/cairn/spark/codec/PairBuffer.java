package io.cairn.spark.codec;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;

/**
 * The current key and value of an iterator, copied out of the cache.
 *
 * <p>Spark may remove a key before it uses the pair, so the rows stay valid after a write, until
 * the next pair.
 */
public final class PairBuffer {
  private static final byte[] NO_BYTES = new byte[0];

  private final RowCodec codec;
  private final boolean isPlain;
  private final CopiedRow key;
  private final CopiedRow value;

  /** The rows of the last call of {@link #set}. */
  public final UnsafeRowPair pair = new UnsafeRowPair(null, null);

  public PairBuffer(RowCodec codec) {
    this.codec = codec;
    isPlain = codec.isPlainKey() && codec.isPlainValue();
    key = new CopiedRow(codec.keyColumns());
    value = new CopiedRow(codec.valueColumns());
  }

  /** Copies an encoded key and its value. */
  public void set(ByteSpan encodedKey, ByteSpan encodedValue) {
    if (isPlain) {
      pair.withRows(key.copy(encodedKey), value.copy(encodedValue));
    } else {
      pair.withRows(key(encodedKey), value(encodedKey, encodedValue));
    }
  }

  private UnsafeRow key(ByteSpan encoded) {
    return codec.isPlainKey() ? key.copy(encoded) : codec.decodeKey(encoded).copy();
  }

  private UnsafeRow value(ByteSpan encodedKey, ByteSpan encoded) {
    return codec.isPlainValue()
        ? value.copy(encoded)
        : codec.decodeValue(encodedKey, encoded).copy();
  }

  /** A row with an array of its own, which the next row reuses. */
  private static final class CopiedRow {
    private final UnsafeRow row;
    private byte[] bytes = NO_BYTES;

    CopiedRow(int columns) {
      row = new UnsafeRow(columns);
    }

    /** Copies a row that follows its version byte. */
    UnsafeRow copy(ByteSpan encoded) {
      int length = encoded.length - 1;
      if (bytes.length < length) {
        bytes = new byte[Math.max(2 * bytes.length, length)];
      }
      Bytes.copy(encoded.base, encoded.offset + 1, bytes, Bytes.ARRAY, length);
      row.pointTo(bytes, Bytes.ARRAY, length);
      return row;
    }
  }
}
