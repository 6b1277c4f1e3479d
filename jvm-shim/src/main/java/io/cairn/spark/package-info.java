/**
 * What Spark calls, and the names that users type.
 *
 * <p>A row goes from the operator to {@link io.cairn.spark.CairnStateStore}, {@code codec} (bytes)
 * and {@code cache} (write buffer over committed cache); what the cache cannot answer goes through
 * {@code engine} to a worker. A commit sends the write buffer as Arrow batches, and one control
 * call makes them a version. Packages import only downwards: root, session, cache | engine | codec,
 * protocol | settings, bytes | errors.
 */
package io.cairn.spark;
