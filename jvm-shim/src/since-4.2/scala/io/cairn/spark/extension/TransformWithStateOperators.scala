package io.cairn.spark.extension

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark.UserFacingDataType
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.{TransformWithStateExec, TransformWithStateExecBase}
import org.apache.spark.sql.streaming.{OutputMode, TimeMode}
import org.apache.spark.sql.types.StructType

/** Spark's operators of `transformWithState`, which accept only Spark's own provider, as Cairn's. */
object TransformWithStateOperators {

  /** The operator to put in the place of another one, if any. */
  val onCairn: PartialFunction[SparkPlan, SparkPlan] = {
    case spark: TransformWithStateExec if spark.isStreaming =>
      TransformWithStateRule.copyAs(classOf[TransformWithStateOnCairn], spark)
    case spark: TransformWithStateInPySparkExec if spark.isStreaming =>
      TransformWithStateRule.copyAs(classOf[TransformWithStateInPySparkOnCairn], spark)
  }
}

/**
 * What differs from Spark's operator: the rule has checked the provider.
 *
 * Not equal to Spark's: a node of a plan does not take a new child that equals the old one.
 */
trait OnCairn extends TransformWithStateExecBase {
  override def nodeName: String = getClass.getSimpleName.stripSuffix("OnCairn")

  override def canEqual(other: Any): Boolean = other.isInstanceOf[OnCairn]

  override def equals(other: Any): Boolean = canEqual(other) && super.equals(other)

  override def hashCode(): Int = super.hashCode()

  override def validateStateStoreProvider(isStreaming: Boolean): Unit = ()
}

/** Spark's operator of the Python API. */
final class TransformWithStateInPySparkOnCairn(
    functionExpr: Expression,
    groupingAttributes: Seq[Attribute],
    outputAttrs: Seq[Attribute],
    outputMode: OutputMode,
    timeMode: TimeMode,
    stateInfo: Option[StatefulOperatorStateInfo],
    batchTimestampMs: Option[Long],
    prevBatchTimestampMs: Option[Long],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    userFacingDataType: UserFacingDataType.Value,
    child: SparkPlan,
    isStreaming: Boolean,
    hasInitialState: Boolean,
    initialState: SparkPlan,
    initialStateGroupingAttrs: Seq[Attribute],
    initialStateSchema: StructType)
    extends TransformWithStateInPySparkExec(
      functionExpr,
      groupingAttributes,
      outputAttrs,
      outputMode,
      timeMode,
      stateInfo,
      batchTimestampMs,
      prevBatchTimestampMs,
      eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction,
      userFacingDataType,
      child,
      isStreaming,
      hasInitialState,
      initialState,
      initialStateGroupingAttrs,
      initialStateSchema)
    with OnCairn {

  override protected def doExecute(): RDD[InternalRow] =
    if (BulkTransform.fits(this)) BulkTransform.execute(this) else super.doExecute()

  override protected def withNewChildrenInternal(
      newLeft: SparkPlan,
      newRight: SparkPlan): TransformWithStateInPySparkExec =
    TransformWithStateRule.copyAs(
      classOf[TransformWithStateInPySparkOnCairn],
      super.withNewChildrenInternal(newLeft, newRight))
}
