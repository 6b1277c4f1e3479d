package io.cairn.spark.extension

import java.io.{ByteArrayOutputStream, DataOutputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicBoolean

import scala.util.control.NonFatal

import io.cairn.spark.minor.{BulkPython, BulkStateServer}
import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark.UserFacingDataType
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImpl
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.streaming.TimeMode
import org.apache.spark.sql.types.{StructField, StructType}
import org.slf4j.LoggerFactory

/**
 * `transformWithState` of PySpark whose worker reads and writes values of many keys at once.
 *
 * Spark runs the user's function as one of `mapInArrow`, by its own runner; the function is Cairn's,
 * which calls the user's processor. The state goes through [[BulkStateServer]]. What an operator
 * does around it is Spark's, line for line: ADR 50.
 */
private[extension] object BulkTransform {
  private val Log = LoggerFactory.getLogger("io.cairn.spark.extension.BulkTransform")
  private val HasWarned = new AtomicBoolean

  /** Whether an operator can run in this way; a reason against it that users can change is logged. */
  def fits(operator: TransformWithStateInPySparkOnCairn): Boolean =
    PhysicalRule.isInBulk(operator.conf) && operator.isStreaming && !operator.hasInitialState &&
      operator.userFacingDataType == UserFacingDataType.PYTHON_ROW && isPossible(operator)

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
}

/** What the tasks of an operator do. */
private[extension] final class BulkTask(operator: TransformWithStateInPySparkOnCairn)
    extends Serializable {

  private val (attributes, offsets) = BulkPython.argOffsets(operator)
  private val schema = DataTypeUtils.fromAttributes(attributes)
  private val keySchema = StructType(
    operator.groupingAttributes.map(key => StructField(key.name, key.dataType, key.nullable)))
  private val keyEncoder = ExpressionEncoder(keySchema).resolveAndBind().asInstanceOf[ExpressionEncoder[Any]]
  private val zone = operator.conf.sessionLocalTimeZone
  private val largeVarTypes = operator.conf.arrowUseLargeVarTypes
  private val stateRowsPerBatch = operator.conf.arrowTransformWithStateInPySparkMaxStateRecordsPerBatch
  private val runnerConf = BulkPython.runnerConf(operator)
  private val artifacts = BulkPython.jobArtifacts()

  /** Returns the rows of a partition; their end commits the store. */
  def run(store: StateStore, input: Iterator[InternalRow]): Iterator[InternalRow] = {
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
    val groups = BulkPython.grouped(operator, inTime(input), attributes)
    // A worker of `mapInArrow` wants each row in a struct. Spark's runner cuts them into batches.
    val rows = groups.flatMap(_._2).map(row => InternalRow(row))
    val results = BulkPython.run(
      operator,
      Iterator(rows),
      command(serve(handle)),
      StructType(Array(StructField("struct", schema))),
      zone,
      largeVarTypes,
      runnerConf,
      artifacts)
    BulkPython.ending(results, () => end(store, handle, beganNs)).map { row =>
      operator.longMetric("numOutputRows") += 1
      row
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
  private def command(server: BulkStateServer): Array[Byte] = {
    val keyCount = offsets(1)
    val facts = new ByteArrayOutputStream
    val out = new DataOutputStream(facts)
    val keyOffsets = offsets.slice(2, 2 + keyCount)
    out.writeInt(keyOffsets.length)
    keyOffsets.foreach(out.writeInt)
    for (text <- Seq(server.socket.toString, keySchema.json)) {
      val bytes = text.getBytes(UTF_8)
      out.writeInt(bytes.length)
      out.write(bytes)
    }
    PickledCall.load("cairn.transform.worker", BulkPython.command(operator), facts.toByteArray)
  }
}
