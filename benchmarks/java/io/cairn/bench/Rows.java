package io.cairn.bench;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.SplittableRandom;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The key and value rows of a store, numbered. As in Spark, every call reuses the row of the call
 * before. The first field of a value is a long. Not thread-safe.
 */
abstract class Rows {
  final StructType keySchema;
  final StructType valueSchema;
  final KeyStateEncoderSpec keySpec;

  /** Whether a key has a list of values. */
  final boolean areLists;

  private Rows(StructType keySchema, StructType valueSchema, KeyStateEncoderSpec keySpec) {
    this(keySchema, valueSchema, keySpec, false);
  }

  private Rows(
      StructType keySchema, StructType valueSchema, KeyStateEncoderSpec keySpec, boolean areLists) {
    this.keySchema = keySchema;
    this.valueSchema = valueSchema;
    this.keySpec = keySpec;
    this.areLists = areLists;
  }

  /** The rows that the options name. */
  static Rows of(BenchOptions options) {
    return switch (options.rows()) {
      case "longs" -> new Longs(false);
      case "lists" -> new Longs(true);
      case "wide" -> new Wide();
      case "strings" -> new Strings();
      default -> Large.of(options.rows());
    };
  }

  abstract UnsafeRow key(long number);

  abstract UnsafeRow value(long number);

  private static StructType longs(String... names) {
    StructType schema = new StructType();
    for (String name : names) {
      schema = schema.add(name, DataTypes.LongType, false);
    }
    return schema;
  }

  private static UnsafeRow longRow(int fieldCount) {
    byte[] bytes = new byte[8 + 8 * fieldCount]; // a word of null bits, then the fields
    UnsafeRow row = new UnsafeRow(fieldCount);
    row.pointTo(bytes, bytes.length);
    return row;
  }

  private static UnsafeRow fourLongs(UnsafeRow row, long number) {
    for (int field = 0; field < 4; field++) {
      row.setLong(field, number + field);
    }
    return row;
  }

  /** Key: one long. Value: four longs, or a list of such rows. */
  private static final class Longs extends Rows {
    private static final StructType KEY = longs("key");
    private final UnsafeRow key = longRow(1);
    private final UnsafeRow value = longRow(4);

    Longs(boolean areLists) {
      super(KEY, longs("v0", "v1", "v2", "v3"), new NoPrefixKeyStateEncoderSpec(KEY), areLists);
    }

    @Override
    UnsafeRow key(long number) {
      key.setLong(0, number);
      return key;
    }

    @Override
    UnsafeRow value(long number) {
      return fourLongs(value, number);
    }
  }

  /** Writes values of 100 bytes: a long and 92 bytes, of which half do not compress. */
  private static final class WideValue {
    static final StructType SCHEMA =
        new StructType()
            .add("v0", DataTypes.LongType, false)
            .add("v1", DataTypes.BinaryType, false);

    private static final int RANDOM_WORDS = 6;

    private final UnsafeRowWriter writer = new UnsafeRowWriter(2, 128);
    private final byte[] payload = new byte[92];
    private final ByteBuffer random = ByteBuffer.wrap(payload);

    UnsafeRow of(long number) {
      for (int word = 0; word < RANDOM_WORDS; word++) {
        random.putLong(Long.BYTES * word, KeyStream.keyOf(number + word));
      }
      writer.reset();
      writer.zeroOutNullBytes();
      writer.write(0, number);
      writer.write(1, payload);
      return writer.getRow();
    }
  }

  /** Key: one long. Value: 100 bytes. */
  private static final class Wide extends Rows {
    private static final StructType KEY = longs("key");
    private final UnsafeRow key = longRow(1);
    private final WideValue value = new WideValue();

    Wide() {
      super(KEY, WideValue.SCHEMA, new NoPrefixKeyStateEncoderSpec(KEY));
    }

    @Override
    UnsafeRow key(long number) {
      key.setLong(0, number);
      return key;
    }

    @Override
    UnsafeRow value(long number) {
      return value.of(number);
    }
  }

  /** Key: a string of 25 bytes. Value: 100 bytes. */
  private static final class Strings extends Rows {
    private static final StructType KEY = new StructType().add("key", DataTypes.StringType, false);
    private static final byte[] HEX = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] PREFIX = "customer-".getBytes(StandardCharsets.US_ASCII);

    private final UnsafeRowWriter writer = new UnsafeRowWriter(1, 64);
    private final byte[] text = Arrays.copyOf(PREFIX, PREFIX.length + 16);
    private final WideValue value = new WideValue();

    Strings() {
      super(KEY, WideValue.SCHEMA, new NoPrefixKeyStateEncoderSpec(KEY));
    }

    @Override
    UnsafeRow key(long number) {
      for (int digit = 0; digit < 16; digit++) {
        text[PREFIX.length + digit] = HEX[(int) (number >>> (60 - 4 * digit)) & 0xF];
      }
      writer.reset();
      writer.zeroOutNullBytes();
      writer.write(0, UTF8String.fromBytes(text));
      return writer.getRow();
    }

    @Override
    UnsafeRow value(long number) {
      return value.of(number);
    }
  }

  /**
   * Rows of which the key, or the value, has many bytes that do not compress: {@code keys-200000},
   * {@code values-3000000}. With {@code -varied} after it, they have a half to one and a half times
   * as many bytes. The key begins with the number, the value is a long and the bytes.
   */
  private static final class Large extends Rows {
    private static final Pattern NAME = Pattern.compile("(keys|values)-([0-9]+)(-varied)?");
    private static final StructType KEY = new StructType().add("key", DataTypes.BinaryType, false);

    private final boolean isKeyLarge;
    private final int byteCount;
    private final boolean isVaried;
    private final UnsafeRowWriter keyWriter = new UnsafeRowWriter(1, 64);
    private final UnsafeRowWriter valueWriter = new UnsafeRowWriter(2, 64);

    private Large(Matcher name) {
      super(KEY, WideValue.SCHEMA, new NoPrefixKeyStateEncoderSpec(KEY));
      isKeyLarge = name.group(1).equals("keys");
      byteCount = Integer.parseInt(name.group(2));
      isVaried = name.group(3) != null;
    }

    static Large of(String rows) {
      Matcher name = NAME.matcher(rows);
      if (!name.matches()) {
        throw new IllegalArgumentException("no rows named " + rows);
      }
      return new Large(name);
    }

    private byte[] bytesOf(long number, boolean isLarge) {
      int size = Long.BYTES;
      if (isLarge) {
        size += isVaried ? byteCount / 2 + Math.floorMod(number, byteCount) : byteCount;
      }
      byte[] bytes = new byte[size];
      new SplittableRandom(number).nextBytes(bytes);
      ByteBuffer.wrap(bytes).putLong(number);
      return bytes;
    }

    @Override
    UnsafeRow key(long number) {
      keyWriter.reset();
      keyWriter.zeroOutNullBytes();
      keyWriter.write(0, bytesOf(number, isKeyLarge));
      return keyWriter.getRow();
    }

    @Override
    UnsafeRow value(long number) {
      valueWriter.reset();
      valueWriter.zeroOutNullBytes();
      valueWriter.write(0, number);
      valueWriter.write(1, bytesOf(number, !isKeyLarge));
      return valueWriter.getRow();
    }
  }

  /** Key: group and item, which a prefix scan finds by the group. Value: four longs. */
  static final class Grouped extends Rows {
    private static final StructType KEY = longs("group", "item");
    private final UnsafeRow prefix = longRow(1);
    private final UnsafeRow key = longRow(2);
    private final UnsafeRow value = longRow(4);

    Grouped() {
      super(KEY, longs("v0", "v1", "v2", "v3"), new PrefixKeyScanStateEncoderSpec(KEY, 1));
    }

    UnsafeRow prefix(long group) {
      prefix.setLong(0, group);
      return prefix;
    }

    UnsafeRow key(long group, long item) {
      key.setLong(0, group);
      key.setLong(1, item);
      return key;
    }

    /** The first item of group {@code number}. */
    @Override
    UnsafeRow key(long number) {
      return key(number, 0);
    }

    @Override
    UnsafeRow value(long number) {
      return fourLongs(value, number);
    }
  }
}
