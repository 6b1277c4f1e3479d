package io.cairn.spark.extension

import scala.util.control.NonFatal

import io.cairn.spark.CairnStateStoreProvider
import io.cairn.spark.settings.SettingsTable
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}
import org.apache.spark.sql.internal.SQLConf
import org.slf4j.LoggerFactory

/**
 * Applies a rule to a physical plan whose stores are Cairn's; other plans stay as they are, unless
 * the rule is for those of all providers.
 *
 * A rule depends on Spark's own plan classes, which change with every minor version. If it fails,
 * the plan stays as it is, with a warning: a query that the rule only makes faster goes on, and an
 * operator that Spark refuses without the rule fails with Spark's error.
 */
final class PhysicalRule(rule: Rule[SparkPlan], ofAllProviders: Boolean = false)
    extends ColumnarRule {
  override def preColumnarTransitions: Rule[SparkPlan] = Guarded

  private object Guarded extends Rule[SparkPlan] {
    override val ruleName: String = rule.ruleName

    override def apply(plan: SparkPlan): SparkPlan =
      try if (ofAllProviders || PhysicalRule.isOfCairn(conf)) rule(plan) else plan
      catch {
        case error @ (NonFatal(_) | _: LinkageError) =>
          PhysicalRule.Log.warn("{} has no effect on this plan", rule.ruleName, error)
          plan
      }
  }
}

private[extension] object PhysicalRule {
  private val Log = LoggerFactory.getLogger(classOf[PhysicalRule])
  private val Settings = SettingsTable.get
  private val Optimize = "optimizePlans"

  def isOfCairn(conf: SQLConf): Boolean =
    conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS) == classOf[CairnStateStoreProvider].getName

  /**
   * Whether plans may change in order to be faster: one switch for all rules that do so. Who suspects
   * a rule wants Spark's plan back; the rules that a query cannot run without stay.
   */
  def isOptimizing(conf: SQLConf): Boolean = isOn(conf, Optimize)

  /** Whether the state of `transformWithState` in PySpark goes to Python's workers in bulk. */
  def isInBulk(conf: SQLConf): Boolean = isOn(conf, "bulkState")

  private def isOn(conf: SQLConf, name: String): Boolean =
    Settings.value(name, conf.getConfString(Settings.prefix + name, null)).asInstanceOf[Boolean]
}
