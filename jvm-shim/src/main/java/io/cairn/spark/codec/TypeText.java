package io.cairn.spark.codec;

import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** A type as a changelog writes it: without names and nullability, which do not change the bytes. */
final class TypeText {
  private TypeText() {}

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
