package io.cairn.spark.extension

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, PythonUDF}
import org.apache.spark.sql.execution.{GroupedIterator, SparkPlan}
import org.apache.spark.sql.execution.python.streaming.FlatMapGroupsInPandasWithStateExec
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.FlatMapGroupsWithStateExecHelper.StateData
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.streaming.{GroupStateTimeout, OutputMode}
import org.apache.spark.sql.types.StructType

/** Spark's operators of `applyInPandasWithState` whose function is one over chunks of keys. */
object ArrowStateOperators {
  // As in Python's cairn.transform.arrow_state.
  private val Prefix = "cairn.apply_in_arrow_with_state("
  private val StateFormat = 2

  /** The operator to put in the place of another one, if any. */
  val onCairn: PartialFunction[SparkPlan, SparkPlan] = {
    case spark: FlatMapGroupsInPandasWithStateExec
        if !spark.isInstanceOf[ApplyInArrowWithStateExec] &&
          spark.stateFormatVersion == StateFormat && isOfCairn(spark.functionExpr) =>
      TransformWithStateRule.copyAs(classOf[ApplyInArrowWithStateExec], spark)
  }

  private def isOfCairn(function: Expression): Boolean = function match {
    case udf: PythonUDF => udf.name.startsWith(Prefix)
    case _ => false
  }
}

/**
 * Calls a Python function for chunks of keys. Rows that are late, the order of data and timeouts,
 * the commit and the stored form of the state are those of Spark's operator: ADR 49.
 *
 * Not equal to Spark's: a node of a plan does not take a new child that equals the old one.
 */
final class ApplyInArrowWithStateExec(
    functionExpr: Expression,
    groupingAttributes: Seq[Attribute],
    outAttributes: Seq[Attribute],
    stateType: StructType,
    stateInfo: Option[StatefulOperatorStateInfo],
    stateFormatVersion: Int,
    outputMode: OutputMode,
    timeoutConf: GroupStateTimeout,
    batchTimestampMs: Option[Long],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    skipEmittingInitialStateKeys: Boolean,
    child: SparkPlan)
    extends FlatMapGroupsInPandasWithStateExec(
      functionExpr,
      groupingAttributes,
      outAttributes,
      stateType,
      stateInfo,
      stateFormatVersion,
      outputMode,
      timeoutConf,
      batchTimestampMs,
      eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction,
      skipEmittingInitialStateKeys,
      child) {

  override def nodeName: String = "ApplyInArrowWithState"

  override def canEqual(other: Any): Boolean = other.isInstanceOf[ApplyInArrowWithStateExec]

  override def equals(other: Any): Boolean = canEqual(other) && super.equals(other)

  override def hashCode(): Int = super.hashCode()

  override protected def withNewChildInternal(
      newChild: SparkPlan): FlatMapGroupsInPandasWithStateExec =
    TransformWithStateRule.copyAs(
      classOf[ApplyInArrowWithStateExec],
      super.withNewChildInternal(newChild))

  private lazy val chunks = ArrowStateChunks.of(this)

  override protected def doExecute(): RDD[InternalRow] = {
    chunks // needs the driver
    super.doExecute()
  }

  override def createInputProcessor(store: StateStore): InputProcessor =
    new InputProcessor(store) {
      private val counters =
        ArrowStateChunks.Counters(numOutputRows, numUpdatedStateRows, numRemovedStateRows)

      override def processNewData(rows: Iterator[InternalRow]): Iterator[InternalRow] =
        chunks.process(
          GroupedIterator(rows, groupingAttributes, child.output),
          store,
          stateManager.stateSchema,
          counters)

      override def processTimedOutState(): Iterator[InternalRow] =
        if (isTimeoutEnabled) chunks.processTimedOut(store, stateManager.stateSchema, counters)
        else Iterator.empty

      override def processNewDataWithInitialState(
          rows: Iterator[InternalRow],
          initial: Iterator[InternalRow],
          skipEmittingInitialStateKeys: Boolean): Iterator[InternalRow] =
        throw new UnsupportedOperationException("Spark's operator has no initial state")

      override protected def callFunctionAndUpdateState(
          state: StateData,
          rows: Iterator[InternalRow],
          hasTimedOut: Boolean): Iterator[InternalRow] =
        throw new UnsupportedOperationException("the function is called for chunks of keys")
    }
}
