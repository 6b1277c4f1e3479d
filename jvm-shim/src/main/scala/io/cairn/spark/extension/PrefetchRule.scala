package io.cairn.spark.extension

import io.cairn.spark.session.ColumnFamilies
import org.apache.spark.sql.catalyst.expressions.{
  Expression, InputFileBlockLength, InputFileBlockStart, InputFileName}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.exchange.Exchange
import org.apache.spark.sql.execution.python.streaming.FlatMapGroupsInPandasWithStateExec
import org.apache.spark.sql.execution.streaming.operators.stateful.{
  SessionWindowStateStoreRestoreExec, StateStoreRestoreExec, StatefulOperatorStateInfo,
  StreamingDeduplicateExec, StreamingDeduplicateWithinWatermarkExec}
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.FlatMapGroupsWithStateExec
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * Puts a [[PrefetchExec]] below each operator that reads the keys of its input rows from a store of
 * Cairn.
 *
 * Depends on Spark's stateful operators: they have no common trait that tells the key of a row.
 */
object PrefetchRule extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan =
    if (PhysicalRule.isOptimizing(conf)) {
      val mayNameFiles = plan.exists(_.expressions.exists(_.exists(namesReadFile)))
      plan.transformUp {
        case operator if mayNameFiles && operator.children.exists(readsSource) => operator
        case operator => withPrefetch(operator)
      }
    } else {
      plan
    }

  /** Whether an expression names the file that its task reads now, as the file of its row. */
  private def namesReadFile(expression: Expression): Boolean = expression match {
    case _: InputFileName | _: InputFileBlockStart | _: InputFileBlockLength => true
    case _ => false
  }

  /** Whether the tasks of an operator read a source themselves: a prefetch would read it ahead. */
  private def readsSource(plan: SparkPlan): Boolean = plan match {
    case _: Exchange => false
    case source if source.children.isEmpty => true
    case other => other.children.exists(readsSource)
  }

  private def withPrefetch(operator: SparkPlan): SparkPlan = operator match {
    case restore: StateStoreRestoreExec =>
      belowOne(restore, restore.stateInfo, restore.keyExpressions)
    case sessions: SessionWindowStateStoreRestoreExec =>
      belowOne(
        sessions, sessions.stateInfo, sessions.keyWithoutSessionExpressions, isPrefix = true)
    case distinct: StreamingDeduplicateExec =>
      belowOne(distinct, distinct.stateInfo, distinct.keyExpressions)
    case distinct: StreamingDeduplicateWithinWatermarkExec =>
      belowOne(distinct, distinct.stateInfo, distinct.keyExpressions)
    case groups: FlatMapGroupsWithStateExec if !groups.hasInitialState =>
      belowOne(groups, groups.stateInfo, groups.groupingAttributes)
    case groups: FlatMapGroupsInPandasWithStateExec =>
      belowOne(groups, groups.stateInfo, groups.groupingAttributes)
    case join: StreamingSymmetricHashJoinExec if join.stateInfo.isDefined =>
      belowBoth(join, join.stateInfo.get)
    case _ => operator
  }

  /** Prefetches in the default family, over the first child, which is the input. */
  private def belowOne(
      operator: SparkPlan,
      info: Option[StatefulOperatorStateInfo],
      keys: Seq[Expression],
      isPrefix: Boolean = false): SparkPlan =
    if (info.isEmpty || keys.isEmpty) {
      operator
    } else {
      val families =
        Seq(StateFamily(StateStoreId.DEFAULT_STORE_NAME, ColumnFamilies.DEFAULT, isPrefix))
      val state = PrefetchedState(info.get.checkpointLocation, info.get.operatorId, families)
      val input = over(operator.children.head, keys, state)
      operator.withNewChildren(input +: operator.children.tail)
    }

  /** A row looks up its key in the state of the other side, and adds itself to that of its own. */
  private def belowBoth(
      join: StreamingSymmetricHashJoinExec,
      info: StatefulOperatorStateInfo): SparkPlan = {
    def family(side: String, content: String): StateFamily = {
      val name = s"$side-$content"
      // Formats 1 and 2 have a store for each, format 3 has one store.
      if (join.stateFormatVersion < 3) StateFamily(name, ColumnFamilies.DEFAULT)
      else StateFamily(StateStoreId.DEFAULT_STORE_NAME, name)
    }
    def state(own: String, other: String): PrefetchedState =
      if (join.stateFormatVersion > 3) {
        // It appends to its own side without a read, and scans the other side's times of the key.
        // To remove old rows of an outer join, it scans their times, and reads each row.
        val times = family(other, "keyWithTsToValues")
          .copy(isPrefix = true, timeIndex = Some(s"$other-tsWithKey"))
        PrefetchedState(info.checkpointLocation, info.operatorId, Seq(times))
      } else {
        val lengths = family(other, "keyToNumValues")
        PrefetchedState(
          info.checkpointLocation,
          info.operatorId,
          Seq(lengths, family(own, "keyToNumValues")),
          Some(lengths -> family(other, "keyWithIndexToValue")))
      }
    def input(child: SparkPlan, keys: Seq[Expression], own: String, other: String): SparkPlan =
      over(child, keys, state(own, other))
    join.withNewChildren(
      Seq(
        input(join.left, join.leftKeys, "left", "right"),
        input(join.right, join.rightKeys, "right", "left")))
  }

  private def over(input: SparkPlan, keys: Seq[Expression], state: PrefetchedState): SparkPlan =
    input match {
      case present: PrefetchExec => present
      case _ => PrefetchExec(keys, state, input)
    }
}
