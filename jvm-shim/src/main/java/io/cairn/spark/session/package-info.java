/**
 * One store at one version: the instance with its lock and current version, and its sessions.
 *
 * <p>{@link io.cairn.spark.session.StoreInstance} lives as long as Spark's provider object, {@link
 * io.cairn.spark.session.StoreSession} from load to commit, abort or release. Rows are read and
 * written in {@code cache}, which reads from the worker through {@code engine}.
 */
package io.cairn.spark.session;
