package io.cairn.spark.extension

import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicBoolean

import scala.util.control.NonFatal

import io.cairn.spark.minor.{BulkPython, BulkStateServer}
import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark.UserFacingDataType
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper.StateStoreAwareZipPartitionsHelper
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImpl
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.TimeMode
import org.apache.spark.sql.types.{StructField, StructType}
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, parse, render}
import org.slf4j.LoggerFactory

/**
 * `transformWithState` of PySpark whose worker reads and writes the state of many keys at once.
 *
 * Spark runs the user's function as one of `mapInArrow`, by its own runner; the function is Cairn's,
 * which calls the user's processor. The state goes through [[BulkStateServer]]. What an operator
 * does around it is Spark's, line for line: ADR 48.
 */
private[extension] object BulkTransform {
  private val Log = LoggerFactory.getLogger("io.cairn.spark.extension.BulkTransform")
  private val HasWarned = new AtomicBoolean

  /** Whether an operator can run in this way; a reason against it that users can change is logged. */
  def fits(operator: TransformWithStateInPySparkOnCairn): Boolean =
    PhysicalRule.isInBulk(operator.conf) && operator.isStreaming && isPossible(operator)

  private def isPossible(operator: TransformWithStateInPySparkOnCairn): Boolean =
    try {
      BulkStateServer.sparksHandler()
      val own = engines(operator)
      val users = BulkPython.pythonExec(operator)
      if (own != users) {
        warn(s"the engine's Python is $own, that of the query's workers $users", null)
      }
      own == users
    } catch {
      case error @ (NonFatal(_) | _: LinkageError) =>
        warn("this Spark has other classes than those it was made for", error)
        false
    }

  /** The Python of the engine, which has Cairn's package. */
  private def engines(operator: TransformWithStateInPySparkOnCairn): String =
    Option(operator.conf.getConfString("spark.sql.streaming.stateStore.cairn.python", null))
      .orElse(operator.session.sparkContext.getConf.getOption("spark.pyspark.python"))
      .orElse(sys.env.get("PYSPARK_PYTHON"))
      .getOrElse("python3")

  private def warn(reason: String, error: Throwable): Unit =
    if (HasWarned.compareAndSet(false, true)) {
      Log.warn("transformWithState reads and writes each value by itself, as Spark does: {}", reason, error)
    }

  /** Returns the rows of the operator. */
  def execute(operator: TransformWithStateInPySparkOnCairn): RDD[InternalRow] = {
    operator.metrics // they must exist before the plan goes to the executors
    val task = new BulkTask(operator)
    if (operator.hasInitialState) executeFromState(operator, task)
    else
      operator.child
        .execute()
        .mapPartitionsWithStateStore[InternalRow](
          operator.getStateInfo,
          BulkPython.keyRow(operator),
          BulkPython.valueRow(operator),
          NoPrefixKeyStateEncoderSpec(BulkPython.keyRow(operator)),
          BulkPython.sessionState(operator),
          Some(BulkPython.coordinator(operator)),
          useColumnFamilies = true,
          useMultipleValuesPerKey = true)((store, rows) => task.run(store, rows))
  }

  private def executeFromState(
      operator: TransformWithStateInPySparkOnCairn,
      task: BulkTask): RDD[InternalRow] = {
    val storeConf = new StateStoreConf(BulkPython.sessionState(operator).conf)
    val hadoopConf = BulkPython.hadoopConf(operator)
    new StateStoreAwareZipPartitionsHelper(operator.child.execute()).stateStoreAwareZipPartitions(
      operator.initialState.execute(),
      operator.getStateInfo,
      storeNames = Seq(),
      BulkPython.coordinator(operator)) { (partition, rows, initial) =>
      val info = operator.getStateInfo
      val store = StateStore.get(
        StateStoreProviderId(
          StateStoreId(info.checkpointLocation, info.operatorId, partition),
          info.queryRunId),
        BulkPython.keyRow(operator),
        BulkPython.valueRow(operator),
        NoPrefixKeyStateEncoderSpec(BulkPython.keyRow(operator)),
        info.storeVersion,
        info.getStateStoreCkptId(partition).map(_.head),
        info.stateSchemaMetadata,
        useColumnFamilies = true,
        storeConf,
        hadoopConf.get())
      task.run(store, rows, Some(initial))
    }
  }
}

/** What the tasks of an operator do. */
private[extension] final class BulkTask(operator: TransformWithStateInPySparkOnCairn)
    extends Serializable {

  private val (attributes, offsets) =
    BulkPython.argOffsets(operator.child, operator.groupingAttributes)
  private val keySchema = StructType(
    operator.groupingAttributes.map(key => StructField(key.name, key.dataType, key.nullable)))
  private val keyEncoder = ExpressionEncoder(keySchema).resolveAndBind().asInstanceOf[ExpressionEncoder[Any]]
  private val zone = operator.conf.sessionLocalTimeZone
  private val largeVarTypes = operator.conf.arrowUseLargeVarTypes
  private val stateRowsPerBatch = operator.conf.arrowTransformWithStateInPySparkMaxStateRecordsPerBatch
  private val maxRecords = operator.conf.arrowMaxRecordsPerBatch
  private val maxBytes = operator.conf.arrowMaxBytesPerBatch
  private val runnerConf = BulkPython.runnerConf(operator) ++ Map(
    SQLConf.ARROW_EXECUTION_MAX_RECORDS_PER_BATCH.key -> maxRecords.toString,
    SQLConf.ARROW_EXECUTION_MAX_BYTES_PER_BATCH.key -> maxBytes.toString)
  private val artifacts = BulkPython.jobArtifacts()

  /** Returns the rows of a partition; their end commits the store. */
  def run(
      store: StateStore,
      input: Iterator[InternalRow],
      initial: Option[Iterator[InternalRow]] = None): Iterator[InternalRow] = {
    val beganNs = System.nanoTime
    val handle = new StatefulProcessorHandleImpl(
      store,
      operator.getStateInfo.queryRunId,
      keyEncoder,
      operator.timeMode,
      operator.isStreaming,
      operator.batchTimestampMs,
      operator.prevBatchTimestampMs,
      operator.metrics)
    val grouped =
      BulkPython.grouped(inTime(input), operator.child, operator.groupingAttributes, attributes)
    val schema = DataTypeUtils.fromAttributes(attributes)
    val (batches, batchSchema, initialOffsets) = initial match {
      case None => (batched(grouped), schema, Array.empty[Int])
      case Some(rows) => withInitial(grouped, schema, rows)
    }
    val results = BulkPython.run(
      operator,
      // A worker of `mapInArrow` wants each row in a struct.
      batches.map(_.map(row => InternalRow(row))),
      command(serve(handle), initialOffsets),
      StructType(Array(StructField("struct", batchSchema))),
      zone,
      largeVarTypes,
      runnerConf,
      artifacts)
    BulkPython.ending(results, () => end(store, handle, beganNs)).map { row =>
      operator.longMetric("numOutputRows") += 1
      row
    }
  }

  /**
   * Returns the batches with the rows of the initial state and those after them with the other rows.
   * A batch has one kind of rows.
   */
  private def withInitial(
      grouped: Iterator[InternalRow],
      schema: StructType,
      initial: Iterator[InternalRow]): (Iterator[Iterator[InternalRow]], StructType, Array[Int]) = {
    val (initialAttributes, initialOffsets) =
      BulkPython.argOffsets(operator.initialState, operator.initialStateGroupingAttrs)
    val initialGrouped = BulkPython.grouped(
      initial,
      operator.initialState,
      operator.initialStateGroupingAttrs,
      initialAttributes)
    val batches = batched(initialGrouped).map(_.map(row => InternalRow(null, row))) ++
      batched(grouped).map(_.map(row => InternalRow(row, null)))
    val both = new StructType()
      .add("inputData", schema)
      .add("initState", DataTypeUtils.fromAttributes(initialAttributes))
    (batches, both, initialOffsets)
  }

  /** Cuts rows into batches as Spark's operator does; each must be read before the next one. */
  private def batched(rows: Iterator[InternalRow]): Iterator[Iterator[InternalRow]] =
    new Iterator[Iterator[InternalRow]] {
      override def hasNext: Boolean = rows.hasNext
      override def next(): Iterator[InternalRow] = new Iterator[InternalRow] {
        private var count = 0
        private var bytes = 0L
        override def hasNext: Boolean =
          rows.hasNext && (maxRecords <= 0 || count < maxRecords) &&
            (maxBytes <= 0 || bytes < maxBytes)
        override def next(): InternalRow = {
          val row = rows.next()
          count += 1
          row match {
            case row: UnsafeRow => bytes += row.getSizeInBytes
            case _ =>
          }
          row
        }
      }
    }

  private def end(store: StateStore, handle: StatefulProcessorHandleImpl, beganNs: Long): Unit = {
    operator.longMetric("allUpdatesTimeMs") +=
      TimeUnit.NANOSECONDS.toMillis(System.nanoTime - beganNs)
    operator.longMetric("commitTimeMs") += BulkPython.timeTakenMs(
      operator,
      () => {
        handle.doTtlCleanup()
        store.commit()
      })
    BulkPython.setMetrics(operator, store)
  }

  private def inTime(input: Iterator[InternalRow]): Iterator[InternalRow] =
    operator.watermarkPredicateForDataForLateEvents match {
      case Some(isLate) if operator.timeMode == TimeMode.EventTime() =>
        BulkPython.withoutLate(operator, input, isLate)
      case _ => input
    }

  /** Starts the server of the state; it ends with the task. */
  private def serve(handle: StatefulProcessorHandleImpl): BulkStateServer = {
    val server = new BulkStateServer(
      handle,
      keySchema,
      stateRowsPerBatch,
      operator.batchTimestampMs.map(Long.box),
      operator.eventTimeWatermarkForEviction.map(Long.box))
    val thread = new Thread(server, "cairn-state-of-python")
    thread.setDaemon(true)
    thread.start()
    TaskContext.get().addTaskCompletionListener[Unit](_ => server.close())
    server
  }

  /** The function of the worker: the user's, with what it must know of this task. */
  private def command(server: BulkStateServer, initialOffsets: Array[Int]): Array[Byte] = {
    val facts =
      ("socket" -> server.socket.toString) ~
        ("keySchema" -> parse(keySchema.json)) ~
        ("keyOffsets" -> BulkTask.keyOffsets(offsets)) ~
        ("valueOffsets" -> offsets.drop(2 + offsets(1)).toSeq) ~
        ("initialKeyOffsets" -> BulkTask.keyOffsets(initialOffsets)) ~
        ("isPandas" -> (operator.userFacingDataType == UserFacingDataType.PANDAS)) ~
        ("conf" -> runnerConf)
    PickledCall.load(
      "cairn.transform.worker", BulkPython.command(operator), compact(render(facts)).getBytes(UTF_8))
  }
}

private[extension] object BulkTask {

  /** The numbers of the key's columns: Spark writes the length of all, that of the key, and these. */
  def keyOffsets(offsets: Array[Int]): Seq[Int] =
    if (offsets.isEmpty) Nil else offsets.slice(2, 2 + offsets(1)).toSeq
}
