package io.cairn.spark.codec;

/** A declared column family with its codec. Its id belongs to a version: {@link FamilyInfo}. */
public record ColumnFamily(FamilySpec spec, RowCodec codec) {
  public String name() {
    return spec.name();
  }

  /** The family with the id that a version has for it. */
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
