package io.cairn.spark.extension

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}
import org.slf4j.LoggerFactory

/**
 * Applies a rule to a physical plan.
 *
 * A rule depends on Spark's own plan classes, which change with every minor version. If it fails,
 * the plan stays as it is, with a warning: a query that the rule only makes faster goes on, and an
 * operator that Spark refuses without the rule fails with Spark's error.
 */
final class PhysicalRule(rule: Rule[SparkPlan]) extends ColumnarRule {
  override def preColumnarTransitions: Rule[SparkPlan] = Guarded

  private object Guarded extends Rule[SparkPlan] {
    override val ruleName: String = rule.ruleName

    override def apply(plan: SparkPlan): SparkPlan =
      try rule(plan)
      catch {
        case error @ (NonFatal(_) | _: LinkageError) =>
          PhysicalRule.Log.warn("{} has no effect on this plan", rule.ruleName, error)
          plan
      }
  }
}

private object PhysicalRule {
  private val Log = LoggerFactory.getLogger(classOf[PhysicalRule])
}
