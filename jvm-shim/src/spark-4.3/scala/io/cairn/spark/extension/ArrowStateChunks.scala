package io.cairn.spark.extension

import java.nio.charset.StandardCharsets.UTF_8

import scala.collection.mutable

import io.cairn.spark.minor.ArrowStatePython
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Attribute, GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.logical.EventTimeTimeout
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.types.{LongType, StructField, StructType}
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarBatch, ColumnVector}

/**
 * The chunks of an operator in its tasks.
 *
 * A chunk is one Arrow batch in each direction. To the worker: the rows of its keys; the first row
 * of each key has the key, its value and its timeout beside it. From the worker: rows of output, and
 * beside them value and timeout of each key, in the same order. So no key comes back.
 *
 * @param maxRecords rows of a chunk, unless its last key has more
 * @param maxBytes bytes of its rows and of its state, likewise
 */
private[extension] final class ArrowStateChunks(
    python: ArrowStatePython,
    input: Seq[Attribute],
    keys: StructType,
    stateType: StructType,
    output: Seq[Attribute],
    batchTimestampMs: Long,
    watermarkMs: Option[Long],
    timeoutThresholdMs: Option[Long],
    maxRecords: Int,
    maxBytes: Long)
    extends Serializable {
  import ArrowStateChunks._

  private val columns = StructType(Seq(
    StructField("rows", nullable(DataTypeUtils.fromAttributes(input))),
    StructField(
      "state",
      new StructType()
        .add("key", nullable(keys))
        .add("value", nullable(stateType))
        .add("timeout", LongType))))

  /** Calls the function for the rows of each key, and then stores its state. */
  def process(
      groups: Iterator[(InternalRow, Iterator[InternalRow])],
      store: StateStore,
      stored: StructType,
      counters: Counters): Iterator[InternalRow] =
    run(
      groups.map { case (key, rows) =>
        val keyRow = key.asInstanceOf[UnsafeRow]
        new Group(keyRow, store.get(keyRow), rows)
      },
      hasTimedOut = false,
      new Stored(store, stored, counters))

  /** Calls the function for the keys whose timeout has passed. */
  def processTimedOut(
      store: StateStore,
      stored: StructType,
      counters: Counters): Iterator[InternalRow] = {
    val threshold = timeoutThresholdMs.get
    val passed = store.iterator().filter { pair =>
      val timeout = pair.value.getLong(Timeout)
      timeout != NoTimestamp && timeout < threshold
    }
    run(
      passed.map(pair => new Group(pair.key, pair.value, Iterator.single(null))),
      hasTimedOut = true,
      new Stored(store, stored, counters))
  }

  private def run(
      groups: Iterator[Group],
      hasTimedOut: Boolean,
      stored: Stored): Iterator[InternalRow] =
    if (!groups.hasNext) {
      Iterator.empty
    } else {
      val toOutput = UnsafeProjection.create(output, output)
      val batches = python.compute(
        new ChunkIterator(groups, stored),
        PickledCall.load(Module, python.command, facts(hasTimedOut).getBytes(UTF_8)),
        StructType(Seq(StructField("struct", columns))))
      batches.flatMap { batch =>
        val made = batch.column(0).asInstanceOf[ArrowColumnVector]
        val rows = made.getChild(0)
        val states = made.getChild(1)
        for (place <- 0 until batch.numRows if !states.isNullAt(place)) {
          stored.put(states.getStruct(place))
        }
        val columns = output.indices.map(rows.getChild(_): ColumnVector).toArray
        val flat = new ColumnarBatch(columns, batch.numRows)
        Iterator.range(0, batch.numRows).filterNot(rows.isNullAt).map { place =>
          stored.counters.output += 1
          toOutput(flat.getRow(place))
        }
      } ++ {
        stored.requireWhole()
        Iterator.empty
      }
    }

  private def facts(hasTimedOut: Boolean): String =
    s"""{"has_timed_out": $hasTimedOut, "processing_time_ms": $batchTimestampMs, """ +
      s""""watermark_ms": ${watermarkMs.getOrElse("null")}, "max_records": $maxRecords}"""

  /** The chunks as rows for the worker; each inner iterator is one Arrow batch. */
  private final class ChunkIterator(groups: Iterator[Group], stored: Stored)
      extends Iterator[Iterator[InternalRow]] {
    override def hasNext: Boolean = groups.hasNext

    override def next(): Iterator[InternalRow] = new Iterator[InternalRow] {
      private var rows = Iterator.empty[InternalRow]
      private var state: InternalRow = _
      private var count = 0
      private var bytes = 0L

      override def hasNext: Boolean =
        rows.hasNext || (count < maxRecords && bytes < maxBytes && groups.hasNext && {
          begin(groups.next())
          true
        })

      private def begin(group: Group): Unit = {
        val (key, value) = stored.expect(group.key, group.value)
        bytes += key.getSizeInBytes
        if (value != null) {
          bytes += value.getSizeInBytes
        }
        state = new GenericInternalRow(Array[Any](
          key,
          if (value == null || value.isNullAt(0)) null else value.getStruct(0, stateType.length),
          timeoutOf(value)))
        rows = group.rows
      }

      override def next(): InternalRow = {
        val row = rows.next()
        count += 1
        row match {
          case unsafe: UnsafeRow => bytes += unsafe.getSizeInBytes
          case _ =>
        }
        val made = new GenericInternalRow(Array[Any](
          new GenericInternalRow(Array[Any](row, state))))
        state = null
        made
      }
    }

    private def timeoutOf(value: UnsafeRow): Any =
      if (value == null || value.numFields <= Timeout || value.getLong(Timeout) == NoTimestamp) null
      else value.getLong(Timeout)
  }
}

private[extension] object ArrowStateChunks {
  private val Module = "cairn.transform.arrow_state"
  private val NoTimestamp = -1L
  // Spark's state format 2: the value in a struct, and the timeout.
  private val Timeout = 1

  final case class Counters(output: SQLMetric, updated: SQLMetric, removed: SQLMetric)

  def of(operator: ApplyInArrowWithStateExec): ArrowStateChunks = {
    val conf = operator.conf
    val maxRecords = conf.arrowMaxRecordsPerBatch
    new ArrowStateChunks(
      new ArrowStatePython(operator),
      operator.child.output,
      DataTypeUtils.fromAttributes(operator.groupingAttributes),
      operator.stateType,
      operator.outAttributes,
      operator.batchTimestampMs.getOrElse(NoTimestamp),
      operator.eventTimeWatermarkForEviction.filter(_ => ArrowStatePython.hasWatermark(operator)),
      operator.timeoutConf match {
        case EventTimeTimeout => operator.eventTimeWatermarkForEviction
        case _ => operator.batchTimestampMs
      },
      if (maxRecords > 0) maxRecords else Int.MaxValue,
      conf.arrowMaxBytesPerBatch)
  }

  /** Rows of keys without rows are null, with all their columns. */
  private def nullable(schema: StructType): StructType =
    StructType(schema.map(_.copy(nullable = true)))

  /** A key with its rows. Key and value are Spark's and change with the next group. */
  private final class Group(
      val key: UnsafeRow,
      val value: UnsafeRow,
      val rows: Iterator[InternalRow])

  /** The keys that the worker has, in their order, with the state that they had. */
  private final class Stored(store: StateStore, schema: StructType, val counters: Counters) {
    private val waiting = mutable.Queue.empty[(UnsafeRow, UnsafeRow)]
    private val toRow = UnsafeProjection.create(schema.map(_.dataType).toArray)

    def expect(key: UnsafeRow, value: UnsafeRow): (UnsafeRow, UnsafeRow) = {
      val own = (key.copy(), if (value == null) null else value.copy())
      waiting.enqueue(own)
      own
    }

    /** Stores the state of the first key that waits, unless it is what the store has. */
    def put(state: InternalRow): Unit = {
      val (key, before) = waiting.dequeue()
      val hasTimeout = !state.isNullAt(1)
      if (!state.isNullAt(0) || hasTimeout) {
        val value = if (state.isNullAt(0)) null else state.getStruct(0, fieldCount)
        val timeout = if (hasTimeout) state.getLong(1) else NoTimestamp
        val row = toRow(new GenericInternalRow(Array[Any](value, timeout)))
        if (row != before) {
          store.put(key, row)
          counters.updated += 1
        }
      } else if (before != null) {
        store.remove(key)
        counters.removed += 1
      }
    }

    private val fieldCount = schema.head.dataType.asInstanceOf[StructType].length

    /** REQUIRES: the worker has ended without an error. */
    def requireWhole(): Unit =
      if (waiting.nonEmpty) {
        throw new IllegalStateException(s"${waiting.size} keys have no state from the worker")
      }
  }
}
