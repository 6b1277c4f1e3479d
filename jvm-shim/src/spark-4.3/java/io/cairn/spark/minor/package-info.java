/**
 * What differs between the minor versions of Spark; this folder is for 4.3. Each version has the
 * same classes, and the rest of the shim is the same source for all of them. It is written for the
 * newest minor: the classes here declare what an older one lacks, and translate its calls.
 */
package io.cairn.spark.minor;
