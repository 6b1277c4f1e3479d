package io.cairn.spark.extension

import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.SparkPlan

/**
 * Gives the functions of `cairn.apply_in_arrow_with_state` their operator, whatever the provider of
 * their stores is: it is Spark's `applyInPandasWithState` but for the way to Python.
 */
object ArrowStateRule extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan = plan.transformUp(ArrowStateOperators.onCairn)
}
