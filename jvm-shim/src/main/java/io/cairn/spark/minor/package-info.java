/**
 * What differs between the minor versions of Spark. The classes are in {@code spark-<minor>}, for
 * one minor, and in {@code since-<minor>}, for that one and later ones. The rest of the shim is
 * written for the newest minor: the classes here declare what an older one lacks, and translate its
 * calls.
 */
package io.cairn.spark.minor;
