/**
 * The classes that Spark calls, and the names that users type.
 *
 * <p>A row passes from the operator through {@link io.cairn.spark.CairnStateStore} and {@code
 * codec} (bytes) to {@code cache} (write buffer over committed cache); reads that the cache cannot
 * answer go through {@code engine} to a worker. A commit sends the write buffer as Arrow batches;
 * one control call commits them as a version. Packages import only downwards: root, session, cache
 * | engine | codec, protocol | settings, bytes | errors.
 */
package io.cairn.spark;
