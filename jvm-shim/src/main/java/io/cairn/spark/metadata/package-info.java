/**
 * Spark's own files of a checkpoint on S3: one conditional PUT per file, without renames.
 *
 * <p>It uses Hadoop's {@code FileSystem} only: the classes of {@code hadoop-aws} may be absent.
 */
package io.cairn.spark.metadata;
