/**
 * One store at one version: the instance and its sessions.
 *
 * <p>{@link io.cairn.spark.session.StoreInstance} lives as long as Spark's provider object, {@link
 * io.cairn.spark.session.StoreSession} from load to commit, abort or release. A session uses the
 * parts of its instance: {@code StoreLock} admits it, {@link io.cairn.spark.session.CurrentVersion}
 * loads its version, {@code StoreRefill} fills the cache for it, {@code CommitJson} and {@code
 * SnapshotReports} serve its commit; {@link io.cairn.spark.session.StorageAccess} says where all of
 * it is stored. Rows are read and written in {@code cache}, which reads from the worker through
 * {@code engine}.
 */
package io.cairn.spark.session;
