package io.cairn.spark.extension

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Attribute, Expression, GenericInternalRow, MutableProjection, NamedExpression, UnsafeProjection,
  UnsafeRow}
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.aggregate.{
  AggregationIterator, BaseAggregateExec, HashAggregateExec}
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}

/**
 * A grouped aggregation without a table of groups: it holds one group at a time.
 *
 * REQUIRES: the rows of a key follow one another in each partition; the buffers of the aggregates
 * have fixed widths, as those of Spark's hash aggregation.
 */
final case class AdjacentAggregateExec(
    requiredChildDistributionExpressions: Option[Seq[Expression]],
    isStreaming: Boolean,
    numShufflePartitions: Option[Int],
    groupingExpressions: Seq[NamedExpression],
    aggregateExpressions: Seq[AggregateExpression],
    aggregateAttributes: Seq[Attribute],
    initialInputBufferOffset: Int,
    resultExpressions: Seq[NamedExpression],
    child: SparkPlan)
    extends BaseAggregateExec {

  override lazy val metrics: Map[String, SQLMetric] =
    Map("numOutputRows" -> SQLMetrics.createMetric(sparkContext, "number of output rows"))

  override def nodeName: String = "CairnAggregate"

  override protected def stringArgs: Iterator[Any] =
    Iterator(groupingExpressions, aggregateExpressions)

  override protected def doExecute(): RDD[InternalRow] = {
    val outputRows = longMetric("numOutputRows")
    val groups = AdjacentAggregateExec.Groups(
      groupingExpressions,
      inputAttributes,
      aggregateExpressions,
      aggregateAttributes,
      initialInputBufferOffset,
      resultExpressions)
    child
      .execute()
      .mapPartitionsWithIndex(
        (partition, rows) => new AdjacentAggregation(partition, rows, groups, outputRows),
        preservesPartitioning = true)
  }

  override protected def withNewChildInternal(newChild: SparkPlan): AdjacentAggregateExec =
    copy(child = newChild)
}

object AdjacentAggregateExec {

  /** The same aggregation as Spark's; see there for the fields. */
  def apply(aggregate: HashAggregateExec): AdjacentAggregateExec =
    AdjacentAggregateExec(
      aggregate.requiredChildDistributionExpressions,
      aggregate.isStreaming,
      aggregate.numShufflePartitions,
      aggregate.groupingExpressions,
      aggregate.aggregateExpressions,
      aggregate.aggregateAttributes,
      aggregate.initialInputBufferOffset,
      aggregate.resultExpressions,
      aggregate.child)

  /** What a task needs of the plan. */
  private[extension] final case class Groups(
      keys: Seq[NamedExpression],
      input: Seq[Attribute],
      aggregates: Seq[AggregateExpression],
      aggregateAttributes: Seq[Attribute],
      firstInputBuffer: Int,
      results: Seq[NamedExpression])
}

/**
 * The groups of a partition, in the order of their rows. The next row reuses the last one.
 *
 * Spark opens a store for writes after it has created this iterator: no row is read before that.
 */
private final class AdjacentAggregation(
    partition: Int,
    rows: Iterator[InternalRow],
    groups: AdjacentAggregateExec.Groups,
    outputRows: SQLMetric)
    extends AggregationIterator(
      partition,
      groups.keys,
      groups.input,
      groups.aggregates,
      groups.aggregateAttributes,
      groups.firstInputBuffer,
      groups.results,
      (expressions, input) => MutableProjection.create(expressions, input)) {

  /** Each has the key that it has returned last: of the group, and of the row after it. */
  private[this] var toGroupKey = UnsafeProjection.create(groups.keys, groups.input)
  private[this] var toNextKey = UnsafeProjection.create(groups.keys, groups.input)

  private[this] val empty: UnsafeRow = newBuffer()
  private[this] val buffer: UnsafeRow = empty.copy()

  /** The first row of the next group, and its key; null: there is none, or none was read. */
  private[this] var row: InternalRow = _
  private[this] var key: UnsafeRow = _
  private[this] var isStarted = false

  private def newBuffer(): UnsafeRow = {
    val types = groups.aggregates.flatMap(_.aggregateFunction.aggBufferAttributes).map(_.dataType)
    val created = UnsafeProjection.create(types.toArray).apply(new GenericInternalRow(types.length))
    initializeBuffer(created)
    created
  }

  override def hasNext: Boolean = {
    if (!isStarted) {
      isStarted = true
      advance()
    }
    row != null
  }

  override def next(): UnsafeRow = {
    if (!hasNext) {
      throw new NoSuchElementException
    }
    val group = key
    val used = toNextKey
    toNextKey = toGroupKey
    toGroupKey = used
    buffer.copyFrom(empty)
    do {
      processRow(buffer, row)
      advance()
    } while (row != null && key == group)
    outputRows += 1
    generateOutput(group, buffer)
  }

  private def advance(): Unit =
    if (rows.hasNext) {
      row = rows.next()
      key = toNextKey(row)
    } else {
      row = null
      key = null
    }
}
