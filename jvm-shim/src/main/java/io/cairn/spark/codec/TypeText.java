package io.cairn.spark.codec;

import java.util.Arrays;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Types as text in a changelog, without names and nullability: these do not change the bytes. */
public final class TypeText {
  private static final String EVENT_TIME = "__event_time";

  private TypeText() {}

  /**
   * The type of a key, without the event time: for keys with a timestamp Spark declares that column
   * when it reads, but not when it writes.
   */
  static String ofKey(StructType schema) {
    StructField[] fields = schema.fields();
    int last = fields.length - 1;
    boolean hasEventTime = last >= 0 && fields[last].name().equals(EVENT_TIME);
    return of(hasEventTime ? new StructType(Arrays.copyOf(fields, last)) : schema);
  }

  /**
   * Whether two declarations of a family have keys of the same type. For keys with a timestamp
   * Spark's state reader declares the event time under its own name, its writer does not.
   */
  public static boolean sameKeys(FamilyInfo one, FamilyInfo other) {
    return one.types().key().equals(other.types().key())
        || isWithEventTime(one, other)
        || isWithEventTime(other, one);
  }

  private static boolean isWithEventTime(FamilyInfo plain, FamilyInfo timed) {
    String keyType = plain.types().key();
    return timed.types().keyEncoder().contains("Timestamp")
        && timed.types().key().equals(keyType.substring(0, keyType.length() - 1) + ",bigint>");
  }

  static String of(DataType type) {
    if (type instanceof StructType struct) {
      StringBuilder text = new StringBuilder("struct<");
      String separator = "";
      for (StructField field : struct.fields()) {
        text.append(separator).append(of(field.dataType()));
        separator = ",";
      }
      return text.append('>').toString();
    }
    if (type instanceof ArrayType array) {
      return "array<" + of(array.elementType()) + ">";
    }
    if (type instanceof MapType map) {
      return "map<" + of(map.keyType()) + "," + of(map.valueType()) + ">";
    }
    return type.simpleString();
  }
}
