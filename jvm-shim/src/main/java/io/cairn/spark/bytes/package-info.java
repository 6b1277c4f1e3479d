/** Spans of bytes, and operations on them. Imports no other package of Cairn. */
package io.cairn.spark.bytes;
