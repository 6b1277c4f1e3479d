/**
 * Frames of the data channel and JSON of the control calls: bytes only, no I/O. {@link
 * io.cairn.spark.protocol.EngineSource} is what the cache asks of the engine. Spec:
 * docs/protocol.md.
 */
package io.cairn.spark.protocol;
