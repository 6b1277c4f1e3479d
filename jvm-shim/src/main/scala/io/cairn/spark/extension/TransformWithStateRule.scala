package io.cairn.spark.extension

import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.SparkPlan

/**
 * Lets `transformWithState` run on Cairn.
 *
 * Spark's operators compare the name of the provider with that of its own one, and refuse any
 * other. The operators that this rule puts in their place differ in that check alone. Their
 * constructors belong to a minor of Spark, and Spark 4.1 has no such check.
 */
object TransformWithStateRule extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan =
    plan.transformUp(TransformWithStateOperators.onCairn)

  /** Returns the operator as its subclass, whose one constructor has the same parameters. */
  def copyAs[T <: SparkPlan](subclass: Class[T], operator: SparkPlan): T = {
    val arguments = operator.productIterator.map(_.asInstanceOf[AnyRef]).toSeq
    subclass.cast(subclass.getConstructors.head.newInstance(arguments: _*))
  }
}
