/**
 * The file systems of the job, served to the workers: all schemes for which the engine has no
 * storage of its own. Bytes and names only; what they mean is decided in the engine.
 */
package io.cairn.spark.files;
