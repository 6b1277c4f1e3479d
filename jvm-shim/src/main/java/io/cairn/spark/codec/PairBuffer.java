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
  private final UnsafeRow keyRow;
  private final UnsafeRow valueRow;
  private byte[] keyBytes = NO_BYTES;
  private byte[] valueBytes = NO_BYTES;

  /** The rows of the last call of {@link #set}. */
  public final UnsafeRowPair pair = new UnsafeRowPair(null, null);

  public PairBuffer(RowCodec codec) {
    this.codec = codec;
    isPlain = codec.isPlainKey() && codec.isPlainValue();
    keyRow = new UnsafeRow(codec.keyColumns());
    valueRow = new UnsafeRow(codec.valueColumns());
  }

  /** Copies an encoded key and its value. */
  public void set(ByteSpan key, ByteSpan value) {
    if (isPlain) {
      setPlain(key, value);
    } else {
      pair.withRows(key(key), value(value));
    }
  }

  private void setPlain(ByteSpan key, ByteSpan value) {
    copyKey(key);
    copyValue(value);
    pair.withRows(keyRow, valueRow);
  }

  private UnsafeRow key(ByteSpan encoded) {
    if (!codec.isPlainKey()) {
      return codec.decodeKey(encoded).copy();
    }
    copyKey(encoded);
    return keyRow;
  }

  private UnsafeRow value(ByteSpan encoded) {
    if (!codec.isPlainValue()) {
      return codec.decodeValue(encoded).copy();
    }
    copyValue(encoded);
    return valueRow;
  }

  private void copyKey(ByteSpan encoded) {
    int bytes = encoded.length - 1;
    if (keyBytes.length < bytes) {
      keyBytes = new byte[Math.max(2 * keyBytes.length, bytes)];
    }
    Bytes.copy(encoded.base, encoded.offset + 1, keyBytes, Bytes.ARRAY, bytes);
    keyRow.pointTo(keyBytes, Bytes.ARRAY, bytes);
  }

  private void copyValue(ByteSpan encoded) {
    int bytes = encoded.length - 1;
    if (valueBytes.length < bytes) {
      valueBytes = new byte[Math.max(2 * valueBytes.length, bytes)];
    }
    Bytes.copy(encoded.base, encoded.offset + 1, valueBytes, Bytes.ARRAY, bytes);
    valueRow.pointTo(valueBytes, Bytes.ARRAY, bytes);
  }
}
