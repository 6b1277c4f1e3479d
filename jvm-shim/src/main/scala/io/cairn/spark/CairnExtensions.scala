package io.cairn.spark

import io.cairn.spark.extension.{
  AdjacentAggregateRule, PhysicalRule, PrefetchRule, TransformWithStateRule}
import org.apache.spark.sql.SparkSessionExtensions

/**
 * What Cairn adds to Spark's planner: the class that `spark.sql.extensions` names.
 *
 * Each rule is injected as a columnar rule. Spark applies these to a micro-batch after the rules of
 * `IncrementalExecution`, so every stateful operator already has its store and version; and to plans
 * without adaptive execution too, which the streaming engine turns off for stateful queries.
 */
class CairnExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    SparkVersionCheck.require()
    extensions.injectColumnar(_ => new PhysicalRule(TransformWithStateRule))
    extensions.injectColumnar(_ => new PhysicalRule(AdjacentAggregateRule))
    extensions.injectColumnar(_ => new PhysicalRule(PrefetchRule))
  }
}
