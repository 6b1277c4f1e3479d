package io.cairn.spark.codec;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.minor.SparkApi;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RangeKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RocksDBDataEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBKeyStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.RocksDBValueStateEncoder;
import org.apache.spark.sql.execution.streaming.state.StateRowEncoderCacheKey;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowDataEncoder;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Rows of one column family to bytes and back.
 *
 * <p>Plain keys and values, {@code 00 | row}, are copied without an allocation or a call of Spark's
 * encoder. These are keys without a prefix or range encoder, and single values, both in the
 * UnsafeRow encoding. Spark's encoder handles all others. Encoders and buffers are reused: one
 * caller at a time.
 */
public final class RowCodec {
  private static final long BYTES = Bytes.ARRAY;

  /** Index of a key's version byte, 0, in its buffer: the row after it is 8-aligned. */
  private static final int VERSION_AT = 7;

  private static final long PLAIN_KEY_AT = BYTES + VERSION_AT;

  private static final int BUFFER_BYTES = 64;

  /** A larger buffer is not kept for the next session: no bound of memory counts it. */
  private static final int MAX_KEPT_BYTES = 1 << 16;

  private final RocksDBKeyStateEncoder keyEncoder;
  private final RocksDBValueStateEncoder valueEncoder;
  private final boolean isPlainKey;
  private final boolean isPlainValue;

  /** Null: values are stored without checksums. */
  private final RowChecksums checksums;

  private final String encoderText;
  private final int keyColumns;
  private UnsafeRow valueRow;
  private byte[] keyBuffer = new byte[BUFFER_BYTES];
  private byte[] valueBuffer = new byte[BUFFER_BYTES];

  /** The last key that Spark's encoder encoded into the key buffer. */
  private byte[] lastRow = new byte[BUFFER_BYTES];

  /** -1: the key buffer has no such key. */
  private int lastRowBytes = -1;

  private int lastKeyBytes;

  /** The encoded key after {@link #encodeKey}; the next call overwrites it. */
  public final ByteSpan key = new ByteSpan();

  /**
   * The encoded value after {@link #encodeValue} or {@link #encodeValues}; the next call overwrites
   * it. Plain values are the row's own bytes, without the version byte.
   */
  public final ByteSpan value = new ByteSpan();

  /**
   * @param checksums null: values have none
   */
  public RowCodec(
      String encoding,
      StateRowEncoderCacheKey cacheKey,
      FamilySpec family,
      Option<StateSchemaProvider> schemas,
      boolean useColumnFamilies,
      RowChecksums checksums) {
    KeyStateEncoderSpec spec = withoutBooleans(family.keySpec());
    StructType valueSchema = family.valueSchema();
    boolean isMulti = family.isMulti();
    boolean isUnsafeRow = encoding.equals("unsaferow");
    // Spark's cache shares its encoders, which are not thread-safe, between all instances of a
    // store; only Avro with its schema ids needs that cache.
    RocksDBDataEncoder data =
        isUnsafeRow
            ? new UnsafeRowDataEncoder(spec, valueSchema)
            : RocksDBStateStoreProvider.getDataEncoder(
                encoding,
                cacheKey,
                spec,
                valueSchema,
                schemas,
                Option.apply(cacheKey.colFamilyName()));
    keyEncoder = RocksDBStateEncoder.getKeyEncoder(data, spec, useColumnFamilies);
    valueEncoder = SparkApi.valueEncoder(data, valueSchema, isMulti);
    isPlainKey = isUnsafeRow && spec instanceof NoPrefixKeyStateEncoderSpec;
    isPlainValue = isUnsafeRow && !isMulti && checksums == null;
    this.checksums = checksums;
    encoderText =
        (isUnsafeRow ? "" : encoding + ":")
            + (checksums == null ? "" : "rowChecksum:")
            + text(spec);
    valueRow = new UnsafeRow(valueSchema.length());
    keyColumns = spec.keySchema().length();
  }

  /**
   * Declares booleans among the ordered columns of a range as bytes.
   *
   * <p>Spark's encoder loses their value. In a row both types are one byte, 0 or 1, so the rows
   * stay the same, and false comes before true.
   */
  private static KeyStateEncoderSpec withoutBooleans(KeyStateEncoderSpec spec) {
    if (!(spec instanceof RangeKeyScanStateEncoderSpec range)) {
      return spec;
    }
    StructField[] fields = range.keySchema().fields().clone();
    CollectionConverters.asJava(range.orderingOrdinals())
        .forEach(
            ordinal -> {
              StructField field = fields[(Integer) ordinal];
              if (field.dataType().equals(DataTypes.BooleanType)) {
                fields[(Integer) ordinal] =
                    new StructField(
                        field.name(), DataTypes.ByteType, field.nullable(), field.metadata());
              }
            });
    return new RangeKeyScanStateEncoderSpec(new StructType(fields), range.orderingOrdinals());
  }

  int keyColumns() {
    return keyColumns;
  }

  int valueColumns() {
    return valueRow.numFields();
  }

  /** Whether values are stored as a version byte and the row's own bytes. */
  public boolean isPlainValue() {
    return isPlainValue;
  }

  public boolean isPlainKey() {
    return isPlainKey;
  }

  public boolean supportsPrefixScan() {
    return keyEncoder.supportPrefixKeyScan();
  }

  public boolean supportsRangeScan() {
    return SparkApi.supportsRangeScan(keyEncoder);
  }

  public boolean supportsDeleteRange() {
    return SparkApi.supportsDeleteRange(keyEncoder);
  }

  public boolean supportsManyValues() {
    return valueEncoder.supportsMultipleValuesPerKey();
  }

  /** The layout of keys as a changelog names it. */
  public String encoderText() {
    return encoderText;
  }

  /** Encodes a key into {@link #key}. */
  public void encodeKey(UnsafeRow row) {
    int bytes = row.getSizeInBytes();
    if (!isPlainKey) {
      encodeKeyBySpark(row, bytes);
      return;
    }
    keyBuffer = withCapacity(keyBuffer, VERSION_AT + 1 + bytes);
    Bytes.copy(row.getBaseObject(), row.getBaseOffset(), keyBuffer, PLAIN_KEY_AT + 1, bytes);
    key.set(keyBuffer, PLAIN_KEY_AT, 1 + bytes);
  }

  /** Encodes a key, unless it is the last one: a write often follows a read of its key. */
  private void encodeKeyBySpark(UnsafeRow row, int bytes) {
    Object base = row.getBaseObject();
    long offset = row.getBaseOffset();
    if (bytes != lastRowBytes || !Bytes.equal(lastRow, BYTES, base, offset, bytes)) {
      lastRowBytes = -1;
      byte[] encoded = keyEncoder.encodeKey(row);
      lastKeyBytes = encoded.length;
      // A copy, because Spark does not promise that its encoders leave the array alone.
      keyBuffer = withCapacity(keyBuffer, encoded.length);
      System.arraycopy(encoded, 0, keyBuffer, 0, encoded.length);
      lastRow = withCapacity(lastRow, bytes);
      Bytes.copy(base, offset, lastRow, BYTES, bytes);
      lastRowBytes = bytes;
    }
    key.set(keyBuffer, BYTES, lastKeyBytes);
  }

  /** The buffer, or a larger one with undefined content. */
  private static byte[] withCapacity(byte[] buffer, int bytes) {
    return buffer.length >= bytes ? buffer : new byte[Math.max(2 * buffer.length, bytes)];
  }

  /**
   * Forgets the rows of the last calls: a plain value is the row's own memory, and the buffers are
   * as large as the largest row.
   */
  public void clear() {
    key.clear();
    value.clear();
    lastRowBytes = -1;
    keyBuffer = kept(keyBuffer);
    lastRow = kept(lastRow);
    if (valueBuffer.length > MAX_KEPT_BYTES) {
      valueBuffer = new byte[BUFFER_BYTES];
      valueRow = new UnsafeRow(valueRow.numFields()); // Spark may still use the last one
    }
  }

  private static byte[] kept(byte[] buffer) {
    return buffer.length > MAX_KEPT_BYTES ? new byte[BUFFER_BYTES] : buffer;
  }

  /** Encodes a key into an array of its own. */
  public byte[] keyBytes(UnsafeRow key) {
    return keyEncoder.encodeKey(key);
  }

  public byte[] prefixBytes(UnsafeRow prefix) {
    return keyEncoder.encodePrefixKey(prefix);
  }

  /**
   * Encodes a value into {@link #value}: a plain one unchanged, another by Spark's encoder. In a
   * multi-value family it is one list element. REQUIRES: {@link #encodeKey} encoded its key last.
   */
  public void encodeValue(UnsafeRow row) {
    if (isPlainValue) {
      value.set(row.getBaseObject(), row.getBaseOffset(), row.getSizeInBytes());
    } else {
      value.set(encoded(row));
    }
  }

  /** The stored form of a value that is not plain. */
  private byte[] encoded(UnsafeRow row) {
    byte[] bytes = valueEncoder.encodeValue(row);
    return checksums == null ? bytes : checksums.add(key, bytes);
  }

  /**
   * Encodes list elements, concatenated, into {@link #value}, unless they take more than a number
   * of bytes. REQUIRES: {@link #encodeKey} encoded their key last.
   *
   * @return the bytes that they take
   */
  public long encodeValues(UnsafeRow[] values, int maxBytes) {
    byte[][] parts = new byte[values.length][];
    long total = 0;
    for (int index = 0; index < values.length; index++) {
      byte[] part = encoded(values[index]);
      total += part.length;
      parts[index] = total <= maxBytes ? part : null;
    }
    if (total > maxBytes) {
      return total;
    }
    byte[] all = new byte[(int) total];
    int at = 0;
    for (byte[] part : parts) {
      System.arraycopy(part, 0, all, at, part.length);
      at += part.length;
    }
    value.set(all);
    return total;
  }

  /**
   * Decodes the value of an encoded key into a row that the next call of this method overwrites.
   */
  public UnsafeRow decodeValue(ByteSpan key, ByteSpan bytes) {
    if (!isPlainValue) {
      return valueEncoder.decodeValue(
          checksums == null ? bytes.toArray() : checksums.verified(key, bytes));
    }
    int length = bytes.length - 1;
    valueBuffer = withCapacity(valueBuffer, length);
    // Copied: the next write may change the bytes in the cache while Spark still uses the row.
    Bytes.copy(bytes.base, bytes.offset + 1, valueBuffer, BYTES, length);
    valueRow.pointTo(valueBuffer, BYTES, length);
    return valueRow;
  }

  /** Decodes the list of an encoded key. */
  public Iterator<UnsafeRow> decodeValues(ByteSpan key, ByteSpan bytes) {
    return checksums == null
        ? valueEncoder.decodeValues(bytes.toArray())
        : checksums.values(valueEncoder, key, bytes);
  }

  /** Decodes a key by Spark's encoder, into a row that it reuses. */
  public UnsafeRow decodeKey(ByteSpan bytes) {
    return keyEncoder.decodeKey(bytes.toArray());
  }

  private static String text(KeyStateEncoderSpec spec) {
    if (spec instanceof PrefixKeyScanStateEncoderSpec prefix) {
      return "PrefixScan(" + prefix.numColsPrefixKey() + ")";
    }
    if (spec instanceof RangeKeyScanStateEncoderSpec range) {
      return "RangeScan(" + range.orderingOrdinals().mkString(",") + ")";
    }
    return spec.getClass().getSimpleName().replace("KeyStateEncoderSpec", "");
  }
}
