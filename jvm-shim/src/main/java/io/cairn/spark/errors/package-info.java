/** The one exception of the shim, and its kinds: what the caller does. */
package io.cairn.spark.errors;
