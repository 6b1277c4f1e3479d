/**
 * UnsafeRows to bytes and back, by Spark's own encoder classes, so that order and schema evolution
 * are exactly Spark's.
 *
 * <p>Layout of the bytes: Spark's {@code RocksDBStateEncoder}.
 */
package io.cairn.spark.codec;
