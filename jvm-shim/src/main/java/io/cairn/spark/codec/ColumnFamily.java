package io.cairn.spark.codec;

/** A declared column family with its codec. Its id belongs to a version: {@link FamilyInfo}. */
public record ColumnFamily(FamilySpec spec, RowCodec codec) {
  public String name() {
    return spec.name();
  }

  /** The family as a version has it under an id. */
  public FamilyInfo info(int id) {
    return new FamilyInfo(
        id,
        spec.name(),
        spec.isMulti(),
        spec.isInternal(),
        codec.supportsPrefixScan() || codec.supportsRangeScan(),
        new FamilyInfo.Types(
            TypeText.ofKey(spec.keySchema()),
            TypeText.of(spec.valueSchema()),
            codec.encoderText()));
  }
}
