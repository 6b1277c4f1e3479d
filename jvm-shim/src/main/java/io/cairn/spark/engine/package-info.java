/**
 * The way to the engine: worker processes, control calls over Py4J, rows as Arrow record batches
 * over a Unix socket.
 *
 * <p>Knows nothing of Spark's state store interfaces. Wire format: docs/architecture.md, "Data
 * channel" and "Control calls".
 */
package io.cairn.spark.engine;
