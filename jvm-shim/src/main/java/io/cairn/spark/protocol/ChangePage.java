package io.cairn.spark.protocol;

/** Some changes of one version in the order of its changelog: op, family, key and value per row. */
public record ChangePage(byte[] ops, short[] families, RowPage rows) {}
