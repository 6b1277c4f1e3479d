package io.cairn.spark.extension

import org.apache.spark.sql.execution.SparkPlan

/** This Spark's operators of `transformWithState` accept every provider. */
object TransformWithStateOperators {

  /** The operator to put in the place of another one: none. */
  val onCairn: PartialFunction[SparkPlan, SparkPlan] = PartialFunction.empty
}
