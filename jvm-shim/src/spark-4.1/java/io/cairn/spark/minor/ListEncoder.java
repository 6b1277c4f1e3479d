package io.cairn.spark.minor;

import java.util.NoSuchElementException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.RocksDBDataEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBValueStateEncoder;
import org.apache.spark.unsafe.Platform;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * Lists whose elements follow each other: {@code i32 bytes, element}.
 *
 * <p>The encoder of this Spark expects a byte between two elements, which its RocksDB adds. Without
 * it, a list has the same bytes under every minor.
 */
final class ListEncoder implements RocksDBValueStateEncoder {
  private final RocksDBDataEncoder data;
  private final RocksDBValueStateEncoder spark;

  /**
   * @param spark Spark's encoder of multiple values, which encodes one element
   */
  ListEncoder(RocksDBDataEncoder data, RocksDBValueStateEncoder spark) {
    this.data = data;
    this.spark = spark;
  }

  @Override
  public boolean supportsMultipleValuesPerKey() {
    return true;
  }

  @Override
  public byte[] encodeValue(UnsafeRow row) {
    return spark.encodeValue(row);
  }

  @Override
  public UnsafeRow decodeValue(byte[] bytes) {
    return spark.decodeValue(bytes);
  }

  @Override
  public Iterator<UnsafeRow> decodeValues(byte[] bytes) {
    return new Elements(bytes == null ? new byte[0] : bytes);
  }

  private final class Elements extends AbstractIterator<UnsafeRow> {
    private final byte[] bytes;
    private int at;

    Elements(byte[] bytes) {
      this.bytes = bytes;
    }

    @Override
    public boolean hasNext() {
      return at < bytes.length;
    }

    @Override
    public UnsafeRow next() {
      if (!hasNext()) {
        throw new NoSuchElementException("the list has no more elements");
      }
      int length = Platform.getInt(bytes, Platform.BYTE_ARRAY_OFFSET + at);
      byte[] element = new byte[length];
      System.arraycopy(bytes, at + Integer.BYTES, element, 0, length);
      at += Integer.BYTES + length;
      return data.decodeValue(element);
    }
  }
}
