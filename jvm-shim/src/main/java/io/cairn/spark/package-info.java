/**
 * What Spark calls. A row's way: operator, {@link io.cairn.spark.CairnStateStore}, {@code codec}
 * (bytes), {@code cache} (overlay over base), and what the cache cannot answer goes by {@code
 * transport} to a worker. Commit: the overlay's writes go as Arrow batches, one control call makes
 * them a version.
 */
package io.cairn.spark;
