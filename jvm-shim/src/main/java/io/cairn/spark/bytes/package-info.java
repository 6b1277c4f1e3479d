/** Regions of bytes, and what can be done with them. Knows no other package. */
package io.cairn.spark.bytes;
