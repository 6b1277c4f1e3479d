package io.cairn.spark.extension

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.WriteToStream
import org.apache.spark.sql.execution.streaming.operators.stateful.{
  StatefulOperatorStateInfo, StateStoreWriter}
import org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors

/** Gives `foreachBatch` of a query whose stores are Cairn's the check of `WholeBatchSink`. */
object WholeBatchRule extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan match {
    case write: WriteToStream =>
      write.sink match {
        case sink: ForeachBatchSink[_]
            if !sink.isInstanceOf[WholeBatchSink] && PhysicalRule.isOfCairn(conf) =>
          write.copy(sink = new WholeBatchSink(sink))
        case _ => plan
      }
    case _ => plan
  }
}

/**
 * `foreachBatch` that fails if its function has not read the whole batch: then some partitions have
 * not committed their state.
 *
 * Spark finds that too, but later. In checkpoint format 2 it says only "assertion failed:
 * CheckpointInfo length". In format 1 its commit log has the batch by then, whose state is missing
 * for good. Here the batch fails before its entry is written, so it runs again after a restart.
 */
final class WholeBatchSink(sink: ForeachBatchSink[_]) extends ForeachBatchSink[Row](null, null) {
  override def addBatch(batchId: Long, data: DataFrame): Unit = {
    sink.addBatch(batchId, data)
    val plan = data.queryExecution.executedPlan
    val operators = plan.collect { case operator: StateStoreWriter => Committed(operator) }
    val lacking = operators.filterNot(_.isWhole)
    if (lacking.nonEmpty) {
      throw StateStoreErrors.stateStoreCommitValidationFailed(
        batchId,
        operators.map(_.expected).sum,
        operators.map(_.count).sum,
        lacking.mkString(", "))
    }
  }

  /** Recorded by Spark, e.g. in the progress of the query. */
  override def toString: String = sink.toString
}

/** How many partitions of an operator have committed their state in this batch. */
private final class Committed(operator: StateStoreWriter, val expected: Int, val count: Int) {
  def isWhole: Boolean = count >= expected

  override def toString: String =
    s"operator ${operator.getStateInfo.operatorId} (${operator.shortName}): " +
      s"${expected - count} of $expected partitions"
}

private object Committed {
  def apply(operator: StateStoreWriter): Committed = {
    // An operator whose rows are all in one partition, such as a global limit, has one store. Those
    // that call functions of the user, such as transformWithState, do not say how many they have.
    val expected = operator.outputPartitioning.numPartitions match {
      case 0 => operator.getStateInfo.numPartitions
      case known => math.min(operator.getStateInfo.numPartitions, known)
    }
    val count =
      if (StatefulOperatorStateInfo.enableStateStoreCheckpointIds(operator.conf)) {
        operator.checkpointInfoAccumulator.value.asScala.map(_.partitionId).distinct.size
      } else {
        // Counts the commits of all tasks. A partition that was committed twice may hide one that
        // was not, which Spark finds at the end of the batch.
        val stores = operator.longMetric("numStateStoreInstances").value
        (stores / operator.stateStoreNames.size).toInt
      }
    new Committed(operator, expected, math.min(count, expected))
  }
}
