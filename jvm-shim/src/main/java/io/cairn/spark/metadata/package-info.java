/**
 * Spark's own files of a checkpoint, without renames: one conditional PUT per file on S3, one link
 * per file in a local folder.
 *
 * <p>It uses Hadoop's {@code FileSystem} only: the classes of {@code hadoop-aws} may be absent.
 */
package io.cairn.spark.metadata;
