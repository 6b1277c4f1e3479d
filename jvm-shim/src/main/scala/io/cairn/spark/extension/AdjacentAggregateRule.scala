package io.cairn.spark.extension

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{FilterExec, ProjectExec, SortExec, SparkPlan}
import org.apache.spark.sql.execution.aggregate.{BaseAggregateExec, HashAggregateExec}
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingWrite
import org.apache.spark.sql.execution.exchange.Exchange
import org.apache.spark.sql.execution.streaming.operators.stateful.{
  StateStoreRestoreExec, StateStoreSaveExec}
import org.apache.spark.sql.execution.streaming.sources.MicroBatchWrite

/**
 * Replaces the aggregations beside the store of a streaming aggregation by ones that need no table.
 *
 * Spark aggregates the rows of a micro-batch by key, restores the old row of each key before its new
 * one, merges the two, saves the result, and evaluates it. It merges and evaluates with a hash table
 * of all keys of the batch each, or sorts them, though the rows of a key follow one another.
 *
 * Both read all their input before the first row leaves. So whoever reads a part of the result, as
 * a limit does, has the whole batch saved. The last aggregation is therefore replaced only where all
 * its rows are read; the merge is always below one that reads all.
 */
object AdjacentAggregateRule extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan =
    if (PhysicalRule.isOptimizing(conf)) {
      replaced(plan, isReadWhole = false)
    } else {
      plan
    }

  /** @param isReadWhole whether all rows of the plan are read in each task */
  private def replaced(plan: SparkPlan, isReadWhole: Boolean): SparkPlan = {
    val isChildReadWhole = plan match {
      case write: WriteToDataSourceV2Exec => readsWhole(write)
      case _: Exchange | _: HashAggregateExec => true
      case _: ProjectExec | _: FilterExec => isReadWhole
      case _ => false
    }
    plan.mapChildren(replaced(_, isChildReadWhole)) match {
      case aggregate: BaseAggregateExec => replacement(aggregate, isReadWhole)
      case other => other
    }
  }

  /** The function of a sink in Python may return before it has read all rows. */
  private def readsWhole(write: WriteToDataSourceV2Exec): Boolean = write.batchWrite match {
    case batch: MicroBatchWrite => !batch.writeSupport.isInstanceOf[PythonStreamingWrite]
    case _ => false
  }

  private def replacement(aggregate: BaseAggregateExec, isReadWhole: Boolean): SparkPlan =
    (aggregate, unsorted(aggregate.child)) match {
      case (merge, restore: StateStoreRestoreExec)
          if groupsBy(merge, restore.keyExpressions) &&
            hasOneRowPerKey(restore.child, restore.keyExpressions) =>
        merge match {
          case fixed: HashAggregateExec => AdjacentAggregateExec(fixed)
          // It compares each row with the one before. Nobody sees the order of its rows: it is saved.
          case _ => merge.toSortAggregate.copy(child = restore)
        }
      case (last: HashAggregateExec, save: StateStoreSaveExec)
          if isReadWhole && groupsBy(last, save.keyExpressions) &&
            hasOneRowPerKey(save.child, save.keyExpressions) =>
        AdjacentAggregateExec(last)
      case _ => aggregate
    }

  private def unsorted(plan: SparkPlan): SparkPlan = plan match {
    case sort: SortExec if !sort.global => sort.child
    case _ => plan
  }

  private def hasOneRowPerKey(plan: SparkPlan, keys: Seq[Attribute]): Boolean = plan match {
    case prefetch: PrefetchExec => hasOneRowPerKey(prefetch.child, keys)
    case aggregate: BaseAggregateExec => groupsBy(aggregate, keys)
    case _ => false
  }

  /** Not without keys: an aggregation of no rows has a result then. */
  private def groupsBy(aggregate: BaseAggregateExec, keys: Seq[Attribute]): Boolean =
    keys.nonEmpty && aggregate.groupingExpressions.map(_.exprId) == keys.map(_.exprId)
}
