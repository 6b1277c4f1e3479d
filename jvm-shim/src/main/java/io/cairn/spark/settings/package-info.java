/**
 * Settings: the table of Cairn's own, those of one store and of its workers, and S3 and the
 * location of a store from the job's Hadoop settings.
 */
package io.cairn.spark.settings;
