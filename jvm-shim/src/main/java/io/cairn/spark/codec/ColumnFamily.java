package io.cairn.spark.codec;

import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.types.StructType;

/**
 * A column family as a provider was told of it: name, schemas, encoders. Its id belongs to a
 * version: see {@link FamilyInfo}.
 */
public final class ColumnFamily {
  private final String name;
  private final StructType keySchema;
  private final StructType valueSchema;
  private final KeyStateEncoderSpec spec;
  private final boolean isMulti;
  private final boolean isInternal;
  private final RowCodec codec;

  public ColumnFamily(
      String name,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec spec,
      boolean isMulti,
      boolean isInternal,
      RowCodec codec) {
    this.name = name;
    this.keySchema = keySchema;
    this.valueSchema = valueSchema;
    this.spec = spec;
    this.isMulti = isMulti;
    this.isInternal = isInternal;
    this.codec = codec;
  }

  public String name() {
    return name;
  }

  public RowCodec codec() {
    return codec;
  }

  public boolean isMulti() {
    return isMulti;
  }

  /** Whether it was declared with the same schemas and key layout. */
  public boolean isAs(
      StructType otherKeySchema,
      StructType otherValueSchema,
      KeyStateEncoderSpec otherSpec,
      boolean multi,
      boolean internal) {
    return isMulti == multi
        && isInternal == internal
        && same(spec, otherSpec)
        && same(keySchema, otherKeySchema)
        && same(valueSchema, otherValueSchema);
  }

  private static boolean same(Object one, Object other) {
    return one == other || one.equals(other);
  }

  /** The family as a version holds it under the given id. */
  public FamilyInfo info(int id) {
    return new FamilyInfo(
        id,
        name,
        isMulti,
        isInternal,
        codec.supportsPrefixScan() || codec.supportsRangeScan(),
        TypeText.ofKey(keySchema),
        TypeText.of(valueSchema),
        codec.encoderText());
  }
}
