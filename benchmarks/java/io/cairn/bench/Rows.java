package io.cairn.bench;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** One key row (a long) and one value row (four longs), reused for every call as Spark does. */
final class Rows {
  static final StructType KEY_SCHEMA = new StructType().add("key", DataTypes.LongType, false);
  static final StructType VALUE_SCHEMA =
      new StructType()
          .add("v0", DataTypes.LongType, false)
          .add("v1", DataTypes.LongType, false)
          .add("v2", DataTypes.LongType, false)
          .add("v3", DataTypes.LongType, false);

  private static final int BITSET_BYTES = 8;

  private final UnsafeRow key = row(1);
  private final UnsafeRow value = row(4);

  private static UnsafeRow row(int fieldCount) {
    byte[] bytes = new byte[BITSET_BYTES + 8 * fieldCount];
    UnsafeRow row = new UnsafeRow(fieldCount);
    row.pointTo(bytes, bytes.length);
    return row;
  }

  UnsafeRow key(long number) {
    key.setLong(0, number);
    return key;
  }

  UnsafeRow value(long number) {
    for (int field = 0; field < 4; field++) {
      value.setLong(field, number + field);
    }
    return value;
  }
}
