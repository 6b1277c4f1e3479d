package io.cairn.spark.protocol;

/**
 * One page of a scan.
 *
 * @param from first key, or null for the start of the family
 * @param isInclusive whether {@code from} itself belongs to the page
 * @param to exclusive end, or null for the end of the family
 */
public record ScanRequest(
    int family, byte[] from, boolean isInclusive, byte[] to, int limitRows, int limitBytes) {}
