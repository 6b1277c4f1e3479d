package io.cairn.spark.extension

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow

/** The way of Spark 4.3 to run `transformWithState` of PySpark; this minor has Spark's own alone. */
private[extension] object BulkTransform {
  def fits(operator: TransformWithStateInPySparkOnCairn): Boolean = false

  def execute(operator: TransformWithStateInPySparkOnCairn): RDD[InternalRow] =
    throw new UnsupportedOperationException("bulkState needs Spark 4.3")
}
