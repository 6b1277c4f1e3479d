package io.cairn.spark.protocol;

/**
 * Some changes of one version, in the changelog's order: op and family of each row beside its key
 * and value.
 */
public record ChangePage(byte[] ops, short[] families, RowPage rows) {}
