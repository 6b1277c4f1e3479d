package io.cairn.spark.codec;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.bytes.ByteSpan;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateRowEncoderCacheKey;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.Test;
import scala.Option;

class RowCodecTest {
  private static final StructType KEY =
      new StructType().add("name", DataTypes.StringType).add("number", DataTypes.LongType);
  private static final StructType VALUE = new StructType().add("value", DataTypes.LongType);

  private static RowCodec codec(KeyStateEncoderSpec spec) {
    return codec(spec, VALUE);
  }

  private static RowCodec codec(KeyStateEncoderSpec spec, StructType value) {
    return codec(spec, value, false);
  }

  private static RowCodec codec(KeyStateEncoderSpec spec, StructType value, boolean isMulti) {
    return new RowCodec(
        "unsaferow",
        new StateRowEncoderCacheKey("run", 0, 0, "default", "default"),
        new FamilySpec("default", KEY, value, spec, isMulti, false),
        Option.empty(),
        false,
        null);
  }

  private static UnsafeRow row(String name, long number) {
    return UnsafeProjection.create(KEY)
        .apply(new GenericInternalRow(new Object[] {UTF8String.fromString(name), number}))
        .copy();
  }

  /** A key is not encoded twice, but it is, if Spark has changed the row in between. */
  @Test
  void keysHaveTheBytesOfSparksEncoder() {
    KeyStateEncoderSpec[] specs = {
      new PrefixKeyScanStateEncoderSpec(KEY, 1), new NoPrefixKeyStateEncoderSpec(KEY)
    };
    for (KeyStateEncoderSpec spec : specs) {
      RowCodec codec = codec(spec);
      UnsafeRow reused = row("a", 0);
      for (int i = 0; i < 100; i++) {
        reused.setLong(1, i / 3);
        UnsafeRow key = i % 7 == 0 ? row("other" + "x".repeat(i), 1) : reused;
        codec.encodeKey(key);
        byte[] encoded = codec.key.toArray();
        assertArrayEquals(codec.keyBytes(key), encoded, spec.getClass().getSimpleName() + " " + i);
        codec.encodeKey(key.copy());
        assertArrayEquals(encoded, codec.key.toArray());
        if (i % 10 == 0) {
          codec.clear();
          assertEquals(0, codec.key.length);
        }
      }
    }
  }

  /** A provider lives for months, and its buffers are in no bound of memory. */
  @Test
  void aLargeRowLeavesNoLargeBuffer() {
    KeyStateEncoderSpec[] specs = {
      new PrefixKeyScanStateEncoderSpec(KEY, 1), new NoPrefixKeyStateEncoderSpec(KEY)
    };
    for (KeyStateEncoderSpec spec : specs) {
      RowCodec codec = codec(spec, KEY);
      UnsafeRow large = row("x".repeat(1 << 20), 1);
      codec.encodeKey(large);
      UnsafeRow read = codec.decodeValue(codec.key, stored(large));

      codec.clear();

      assertEquals(large, read, "the last row stays as it is");
      UnsafeRow small = row("y", 2);
      UnsafeRow next = codec.decodeValue(codec.key, stored(small));
      assertEquals(small, next);
      assertTrue(((byte[]) next.getBaseObject()).length < 1000);
      codec.encodeKey(small);
      assertArrayEquals(codec.keyBytes(small), codec.key.toArray());
      assertTrue(((byte[]) codec.key.base).length < 1000);
    }
  }

  /** A sum that overflows asks for an array of a wrong length. */
  @Test
  void theLengthOfAListOfMoreThanTwoGibibytesIsItsLength() {
    RowCodec codec = codec(new NoPrefixKeyStateEncoderSpec(KEY), KEY, true);
    UnsafeRow[] values = new UnsafeRow[65];
    Arrays.fill(values, row("x".repeat(32 << 20), 1));
    int maxBytes = 64 << 20;
    codec.encodeKey(row("a", 1));

    long one = codec.encodeValues(Arrays.copyOf(values, 1), maxBytes);
    long all = codec.encodeValues(values, maxBytes);

    assertEquals(one, codec.value.length);
    assertEquals(65 * one, all);
  }

  private static ByteSpan stored(UnsafeRow value) {
    byte[] row = value.getBytes();
    byte[] stored = new byte[1 + row.length];
    System.arraycopy(row, 0, stored, 1, row.length);
    ByteSpan span = new ByteSpan();
    span.set(stored);
    return span;
  }
}
