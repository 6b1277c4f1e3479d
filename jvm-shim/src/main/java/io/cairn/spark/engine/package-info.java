/**
 * Engine workers: their processes, control calls over Py4J, and sessions that exchange Arrow record
 * batches with them over a Unix socket.
 *
 * <p>Imports nothing of Spark. Wire format: docs/protocol.md.
 */
package io.cairn.spark.engine;
