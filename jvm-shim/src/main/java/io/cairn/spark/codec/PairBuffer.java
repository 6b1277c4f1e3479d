package io.cairn.spark.codec;

import io.cairn.spark.bytes.ByteSpan;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;

/**
 * The current key and value of an iterator, copied out of the cache.
 *
 * <p>Spark may remove a key before it uses the pair, so the rows stay valid after a write, until
 * the next pair.
 */
public final class PairBuffer {
  private static final long BYTES = Platform.BYTE_ARRAY_OFFSET;

  private final RowCodec codec;
  private final UnsafeRow keyRow;
  private final UnsafeRow valueRow;
  private byte[] keyBytes = new byte[64];
  private byte[] valueBytes = new byte[64];

  public PairBuffer(RowCodec codec) {
    this.codec = codec;
    keyRow = new UnsafeRow(codec.keyColumns());
    valueRow = new UnsafeRow(codec.valueColumns());
  }

  public UnsafeRow key(ByteSpan encoded) {
    if (!codec.isPlainKey()) {
      return codec.decodeKey(encoded).copy();
    }
    int bytes = encoded.length - 1;
    if (keyBytes.length < bytes) {
      keyBytes = new byte[Math.max(2 * keyBytes.length, bytes)];
    }
    Platform.copyMemory(encoded.base, encoded.offset + 1, keyBytes, BYTES, bytes);
    keyRow.pointTo(keyBytes, BYTES, bytes);
    return keyRow;
  }

  public UnsafeRow value(ByteSpan encoded) {
    if (!codec.isPlainValue()) {
      return codec.decodeValue(encoded).copy();
    }
    int bytes = encoded.length - 1;
    if (valueBytes.length < bytes) {
      valueBytes = new byte[Math.max(2 * valueBytes.length, bytes)];
    }
    Platform.copyMemory(encoded.base, encoded.offset + 1, valueBytes, BYTES, bytes);
    valueRow.pointTo(valueBytes, BYTES, bytes);
    return valueRow;
  }
}
