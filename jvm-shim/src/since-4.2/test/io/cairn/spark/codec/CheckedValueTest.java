package io.cairn.spark.codec;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32C;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateRowEncoderCacheKey;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;
import scala.Option;
import scala.collection.immutable.Map$;

class CheckedValueTest {
  private static final StructType LONG = new StructType().add("number", DataTypes.LongType);

  private static UnsafeRow row(long number) {
    return UnsafeProjection.create(LONG)
        .apply(new GenericInternalRow(new Object[] {number}))
        .copy();
  }

  /** The layout is part of the checkpoint format: docs/checkpoint-format.md, checked_value. */
  @Test
  void aCheckedValueIsChecksumLengthAndValue() {
    SQLConf sql = new SQLConf();
    sql.setConfString("spark.sql.streaming.stateStore.rowChecksum.enabled", "true");
    sql.setConfString("spark.sql.streaming.stateStore.rowChecksum.readVerificationRatio", "1");
    StateStoreConf conf = new StateStoreConf(sql, Map$.MODULE$.empty());
    RowCodec codec =
        new RowCodec(
            "unsaferow",
            new StateRowEncoderCacheKey("run", 0, 0, "default", "default"),
            new FamilySpec(
                "default", LONG, LONG, new NoPrefixKeyStateEncoderSpec(LONG), false, false),
            Option.empty(),
            false,
            RowChecksums.of(conf, "0/0/default", () -> 1));
    UnsafeRow value = row(7);
    codec.encodeKey(row(1));
    codec.encodeValue(value);

    byte[] encoded = new byte[1 + value.getSizeInBytes()];
    System.arraycopy(value.getBytes(), 0, encoded, 1, value.getSizeInBytes());
    CRC32C crc = new CRC32C();
    crc.update(codec.key.toArray());
    crc.update(encoded);
    byte[] expected =
        ByteBuffer.allocate(8 + encoded.length)
            .order(ByteOrder.LITTLE_ENDIAN)
            .putInt((int) crc.getValue())
            .putInt(encoded.length)
            .put(encoded)
            .array();
    assertArrayEquals(expected, codec.value.toArray());
    assertEquals("rowChecksum:NoPrefix", codec.encoderText());
    assertEquals(value, codec.decodeValue(codec.key, codec.value));
  }
}
