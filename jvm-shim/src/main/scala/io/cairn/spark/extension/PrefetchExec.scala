package io.cairn.spark.extension

import scala.jdk.CollectionConverters._

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Attribute, Expression, Literal, SortOrder, UnsafeProjection}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * A column family of a stateful operator's stores.
 *
 * @param isPrefix the operator scans it by the key of a row as a prefix
 * @param timeIndex the family that has its keys in the order of their times: [[TimeIndex]]
 */
final case class StateFamily(
    store: String,
    family: String,
    isPrefix: Boolean = false,
    timeIndex: Option[String] = None)

/**
 * The index of rows by time that Spark's joins of format 4 keep. Its keys are a time and the key of
 * the join; the keys of the rows have the time at their end.
 */
object TimeIndex {
  private val TimeBytes = 8

  /** The key of the row that a key of the index names; null if it is too short. */
  def rowKey(indexKey: Array[Byte]): Array[Byte] =
    if (indexKey.length < TimeBytes) null
    else indexKey.drop(TimeBytes) ++ indexKey.take(TimeBytes)
}

/**
 * The state in which a stateful operator reads the keys of its input rows. A family that a task does
 * not have open is ignored.
 *
 * @param checkpoint the root of the query's state
 * @param operator id of the operator in the query
 * @param families those that have one value per key
 * @param lists the families of lengths and of elements, if the operator keeps a list per key
 */
final case class PrefetchedState(
    checkpoint: String,
    operator: Long,
    families: Seq[StateFamily],
    lists: Option[(StateFamily, StateFamily)] = None) {

  def target(partition: Int)(of: StateFamily): PrefetchIterator.Target =
    new PrefetchIterator.Target(
      new StateStoreId(checkpoint, operator, partition, of.store),
      of.family,
      of.isPrefix,
      of.timeIndex.map(new PrefetchIterator.Index(_, TimeIndex.rowKey(_))).orNull)
}

/**
 * Lets the rows of its child through, unchanged and in their order, and requests their keys from
 * the store of the stateful operator above before that operator reads them.
 *
 * REQUIRES: the operator above runs in the same task, on the same partition.
 *
 * @param keys the key of a row, as that operator computes it
 */
final case class PrefetchExec(
    keys: Seq[Expression],
    state: PrefetchedState,
    child: SparkPlan)
    extends UnaryExecNode {

  override def output: Seq[Attribute] = child.output

  override def outputPartitioning: Partitioning = child.outputPartitioning

  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  override def nodeName: String = "CairnPrefetch"

  override protected def stringArgs: Iterator[Any] = Iterator(keys)

  override protected def doExecute(): RDD[InternalRow] =
    child
      .execute()
      .mapPartitionsWithIndex(
        PrefetchExec.prefetching(keys, child.output, state),
        preservesPartitioning = true)

  override protected def withNewChildInternal(newChild: SparkPlan): PrefetchExec =
    copy(child = newChild)
}

private object PrefetchExec {

  /** The work of a task; a function of its own, so that it does not hold the plan. */
  private def prefetching(
      keys: Seq[Expression],
      input: Seq[Attribute],
      state: PrefetchedState): (Int, Iterator[InternalRow]) => Iterator[InternalRow] =
    (partition, rows) => {
      val lists = state.lists.map { case (lengths, elements) =>
        new PrefetchIterator.Lists(
          state.target(partition)(lengths),
          state.target(partition)(elements),
          () => UnsafeProjection.create(keys :+ Literal(0L), input))
      }
      new PrefetchIterator(
        rows,
        () => UnsafeProjection.create(keys, input),
        state.families.map(state.target(partition)).asJava,
        lists.orNull,
        PrefetchIterator.MAX_ROWS)
    }
}
