package io.cairn.spark.minor;

import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.api.python.PythonSQLUtils;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.GenericRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * The rows of one schema as bytes, as {@code cairn.transform.rows} of the worker has them. All
 * numbers are big-endian.
 *
 * <pre>
 * row     i64 nulls, fields, texts      bit i of nulls: field i is null, and its bytes are zero
 *         i64 -1, i32 length, pickle    the row as Spark's messages have it
 *         i64 -2                        no row
 * field   i8 | i16 | i32 | i64 | f64 | u8 boolean | i32 length of a text in UTF-8
 * texts   the bytes of all texts, in the order of the fields
 * </pre>
 *
 * The first form is for schemas of at most 62 fields of these types alone.
 */
final class BulkRows {
  static final long PICKLED = -1;
  static final long NONE = -2;
  private static final int MAX_FIELDS = 62;
  private static final Object TEXT = new Object();

  private final StructType schema;
  private final ExpressionEncoder.Deserializer<Row> deserializer;
  private final DataType[] types;
  private final boolean isPlain;

  BulkRows(StructType schema, ExpressionEncoder.Deserializer<Row> deserializer) {
    this.schema = schema;
    this.deserializer = deserializer;
    types = new DataType[schema.length()];
    boolean arePlain = types.length <= MAX_FIELDS;
    for (int i = 0; i < types.length; i++) {
      types[i] = schema.apply(i).dataType();
      arePlain &= isPlain(types[i]);
    }
    isPlain = arePlain;
  }

  private static boolean isPlain(DataType type) {
    return type.equals(DataTypes.ByteType)
        || type.equals(DataTypes.ShortType)
        || type.equals(DataTypes.IntegerType)
        || type.equals(DataTypes.LongType)
        || type.equals(DataTypes.DoubleType)
        || type.equals(DataTypes.BooleanType)
        || type.equals(DataTypes.StringType);
  }

  /** Reads a row; there is one. */
  Row read(ByteBuffer in) {
    long nulls = in.getLong();
    if (nulls == PICKLED) {
      byte[] pickle = new byte[in.getInt()];
      in.get(pickle);
      return PythonSQLUtils.toJVMRow(pickle, schema, deserializer);
    }
    if (!isPlain) {
      throw new IllegalStateException("a row of " + schema.simpleString() + " is not a pickle");
    }
    Object[] fields = new Object[types.length];
    int[] lengths = null;
    for (int i = 0; i < fields.length; i++) {
      Object field = readField(types[i], in);
      if (field == TEXT) {
        lengths = lengths == null ? new int[fields.length] : lengths;
        lengths[i] = in.getInt();
      }
      fields[i] = (nulls >>> i & 1) == 1 ? null : field;
    }
    if (lengths != null) {
      for (int i = 0; i < fields.length; i++) {
        if (fields[i] == TEXT) {
          fields[i] = new String(in.array(), in.position(), lengths[i], StandardCharsets.UTF_8);
          in.position(in.position() + lengths[i]);
        }
      }
    }
    return new GenericRow(fields);
  }

  private static Object readField(DataType type, ByteBuffer in) {
    if (type == DataTypes.LongType) {
      return in.getLong();
    } else if (type == DataTypes.IntegerType) {
      return in.getInt();
    } else if (type == DataTypes.DoubleType) {
      return in.getDouble();
    } else if (type == DataTypes.BooleanType) {
      return in.get() != 0;
    } else if (type == DataTypes.ShortType) {
      return in.getShort();
    } else if (type == DataTypes.ByteType) {
      return in.get();
    }
    return TEXT;
  }

  /** Writes a row, or that there is none. */
  void write(Row row, DataOutputStream out) throws IOException {
    if (row == null) {
      out.writeLong(NONE);
    } else if (isPlain) {
      writePlain(row, out);
    } else {
      byte[] pickle = PythonSQLUtils.toPyRow(row);
      out.writeLong(PICKLED);
      out.writeInt(pickle.length);
      out.write(pickle);
    }
  }

  private void writePlain(Row row, DataOutputStream out) throws IOException {
    long nulls = 0;
    for (int i = 0; i < types.length; i++) {
      if (row.isNullAt(i)) {
        nulls |= 1L << i;
      }
    }
    out.writeLong(nulls);
    byte[][] texts = null;
    for (int i = 0; i < types.length; i++) {
      boolean isNull = (nulls >>> i & 1) == 1;
      DataType type = types[i];
      if (type == DataTypes.LongType) {
        out.writeLong(isNull ? 0 : row.getLong(i));
      } else if (type == DataTypes.IntegerType) {
        out.writeInt(isNull ? 0 : row.getInt(i));
      } else if (type == DataTypes.DoubleType) {
        out.writeDouble(isNull ? 0 : row.getDouble(i));
      } else if (type == DataTypes.BooleanType) {
        out.writeByte(!isNull && row.getBoolean(i) ? 1 : 0);
      } else if (type == DataTypes.ShortType) {
        out.writeShort(isNull ? 0 : row.getShort(i));
      } else if (type == DataTypes.ByteType) {
        out.writeByte(isNull ? 0 : row.getByte(i));
      } else {
        byte[] text = isNull ? new byte[0] : row.getString(i).getBytes(StandardCharsets.UTF_8);
        texts = texts == null ? new byte[types.length][] : texts;
        texts[i] = text;
        out.writeInt(text.length);
      }
    }
    if (texts != null) {
      for (byte[] text : texts) {
        if (text != null) {
          out.write(text);
        }
      }
    }
  }
}
