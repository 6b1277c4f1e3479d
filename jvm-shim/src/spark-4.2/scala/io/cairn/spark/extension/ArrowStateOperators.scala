package io.cairn.spark.extension

import org.apache.spark.sql.execution.SparkPlan

/** `cairn.apply_in_arrow_with_state` needs Spark 4.3; in Python it refuses this minor. */
object ArrowStateOperators {
  val onCairn: PartialFunction[SparkPlan, SparkPlan] = PartialFunction.empty
}
