/**
 * Where a store's objects lie and how the engine gets there: the job's own Hadoop settings in the
 * engine's words.
 */
package io.cairn.spark.settings;
