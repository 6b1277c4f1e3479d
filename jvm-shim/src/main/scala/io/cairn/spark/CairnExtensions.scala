package io.cairn.spark

import io.cairn.spark.extension.{
  AdjacentAggregateRule, ArrowStateRule, PhysicalRule, PrefetchRule, TransformWithStateRule, WholeBatchRule}
import org.apache.spark.sql.SparkSessionExtensions

/**
 * What Cairn adds to Spark's planner: the class that `spark.sql.extensions` names.
 *
 * The rules of physical plans are injected as columnar rules. Spark applies these to a micro-batch
 * after the rules of `IncrementalExecution`, so every stateful operator already has its store and
 * version; and to plans without adaptive execution too, which the streaming engine turns off for
 * stateful queries.
 */
class CairnExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    SparkVersionCheck.require()
    extensions.injectColumnar(_ => new PhysicalRule(TransformWithStateRule))
    extensions.injectColumnar(_ => new PhysicalRule(ArrowStateRule, ofAllProviders = true))
    extensions.injectColumnar(_ => new PhysicalRule(AdjacentAggregateRule))
    extensions.injectColumnar(_ => new PhysicalRule(PrefetchRule))
    extensions.injectPostHocResolutionRule(_ => WholeBatchRule)
  }
}
