package io.cairn.tests

import java.sql.Timestamp
import java.time.Duration

import org.apache.spark.sql.{DataFrame, Encoder, Encoders, KeyValueGroupedDataset}
import org.apache.spark.sql.functions.{col, try_divide}
import org.apache.spark.sql.streaming.{
  ExpiredTimerInfo, ListState, MapState, OutputMode, StatefulProcessor,
  StatefulProcessorWithInitialState, TTLConfig, TimeMode, TimerValues, ValueState}

case class Event(k: Int, name: Option[String], ts: Timestamp, v: Long)

case class Total(events: Long, total: Long)

case class Visit(
    k: Int, events: Long, total: Long, last: Option[Long], names: Long, isEnded: Boolean)

/** What a key did, or what it has. */
case class Step(k: Int, what: String, number: Long)

/** The initial state of a key. */
case class Start(k: Int, events: Long, total: Long, seen: Seq[Long])

/** As the processor of the same name in `processors.py`. */
class Visits extends StatefulProcessorWithInitialState[Int, Event, Visit, Start] {
  protected val idleMs = 1500000L

  protected var total: ValueState[Total] = _
  protected var values: ListState[Long] = _
  protected var names: MapState[String, Long] = _

  protected def ttl(name: String): TTLConfig = TTLConfig.NONE

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    implicit val totals: Encoder[Total] = Encoders.product[Total]
    implicit val longs: Encoder[Long] = Encoders.scalaLong
    implicit val strings: Encoder[String] = Encoders.STRING
    total = getHandle.getValueState[Total]("total", ttl("total"))
    values = getHandle.getListState[Long]("values", ttl("values"))
    names = getHandle.getMapState[String, Long]("names", ttl("names"))
  }

  override def handleInputRows(
      key: Int,
      rows: Iterator[Event],
      timers: TimerValues): Iterator[Visit] = {
    val present = rows.toSeq.sortBy(row => (row.v, row.name.getOrElse("")))
    val before = current
    total.update(Total(before.events + present.size, before.total + present.map(_.v).sum))
    val kept = if (key % 3 == 0) Array.empty[Long] else values.get().toArray.sorted.takeRight(3)
    if (kept.isEmpty) values.clear() else values.put(kept)
    values.appendList(present.map(_.v).toArray)
    values.appendValue(-1)
    for (row <- present) {
      val name = row.name.getOrElse("")
      if (names.containsKey(name) && row.v % 5 == 0) {
        names.removeKey(name)
      } else {
        names.updateValue(name, if (names.containsKey(name)) names.getValue(name) + 1 else 1)
      }
    }
    later(key, timers)
    Iterator(visit(key, isEnded = false))
  }

  protected def later(key: Int, timers: TimerValues): Unit =
    endAt(timers.getCurrentWatermarkInMs() + idleMs)

  protected def endAt(expiryMs: Long): Unit = {
    getHandle.listTimers().toSeq.foreach(getHandle.deleteTimer)
    getHandle.registerTimer(expiryMs)
  }

  override def handleExpiredTimer(
      key: Int,
      timers: TimerValues,
      expired: ExpiredTimerInfo): Iterator[Visit] = {
    val last = visit(key, isEnded = true)
    total.clear()
    values.clear()
    names.clear()
    Iterator(last)
  }

  override def handleInitialState(key: Int, start: Start, timers: TimerValues): Unit = {
    total.update(Total(start.events, start.total))
    values.put(start.seen.toArray)
    names.updateValue("initial", start.events)
    later(key, timers)
  }

  private def current: Total = if (total.exists()) total.get() else Total(0, 0)

  private def visit(key: Int, isEnded: Boolean): Visit = {
    val now = current
    Visit(key, now.events, now.total, values.get().maxOption, names.values().sum, isEnded)
  }
}

/** Value and list expire before the next batch, and so do the timers of even keys. */
class VisitsByClock extends Visits {
  override protected def ttl(name: String): TTLConfig =
    TTLConfig(if (name == "names") Duration.ofHours(1) else Duration.ofMillis(1))

  override protected def later(key: Int, timers: TimerValues): Unit =
    endAt(timers.getCurrentProcessingTimeInMs() + (if (key % 2 == 0) 1 else 3600000))
}

/**
 * Changes what its scans have still before them: entries of a map while it iterates over them, and
 * timers while timers expire. With Spark's provider a scan has the state at its begin.
 */
class WritesAhead extends StatefulProcessor[Int, Event, Step] {
  // A scan that sees its own writes would not end.
  private val mostSteps = 100

  private var numbers: MapState[Long, Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    implicit val longs: Encoder[Long] = Encoders.scalaLong
    numbers = getHandle.getMapState[Long, Long]("numbers", TTLConfig.NONE)
  }

  override def handleInputRows(
      key: Int,
      rows: Iterator[Event],
      timers: TimerValues): Iterator[Step] = {
    val present = rows.size
    (1L to 4L).foreach(number => numbers.updateValue(number, present))
    var steps = 0
    numbers.iterator().takeWhile(_ => steps < mostSteps).foreach { case (number, value) =>
      steps += 1
      key % 4 match {
        case 0 => numbers.removeKey(number); numbers.updateValue(number + 5, value + 1)
        case 1 => numbers.removeKey(number + 1)
        case 2 => numbers.updateValue(number + 1, value + 100)
        case _ => numbers.removeKey(number + 2); numbers.updateValue(number + 2, value + 7)
      }
    }
    numbers.keys().hasNext // a scan that nobody reads to its end
    (1 to 3).foreach(ms => getHandle.registerTimer(timers.getCurrentWatermarkInMs() + ms))
    Iterator(
      Step(key, "steps", steps),
      Step(key, numbers.iterator().toList.sorted.mkString(" "), present))
  }

  override def handleExpiredTimer(
      key: Int,
      timers: TimerValues,
      expired: ExpiredTimerInfo): Iterator[Step] = {
    val at = expired.getExpiryTimeInMs()
    if (key % 2 == 0) {
      getHandle.registerTimer(at + 1000)
    } else {
      getHandle.listTimers().toList.filter(_ != at).foreach(getHandle.deleteTimer)
    }
    Iterator(Step(key, "timer", at))
  }
}

/** Writes and removes the state of each key, and says which keys had one: there must be none. */
class Withdraws extends StatefulProcessor[Int, Event, Step] {
  private var total: ValueState[Total] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    implicit val totals: Encoder[Total] = Encoders.product[Total]
    total = getHandle.getValueState[Total]("total", TTLConfig.NONE)
  }

  override def handleInputRows(
      key: Int,
      rows: Iterator[Event],
      timers: TimerValues): Iterator[Step] = {
    val before = Option(total.get()).map(found => Step(key, "had state", found.events))
    total.update(Total(rows.size, key))
    require(total.exists())
    total.clear()
    before.iterator
  }
}

/** Plans over the events of the tests, which Python starts. */
object Transforms {
  def visits(events: DataFrame): DataFrame = transform(events, new Visits, TimeMode.EventTime())

  def visitsByClock(events: DataFrame): DataFrame =
    transform(events, new VisitsByClock, TimeMode.ProcessingTime())

  def writesAhead(events: DataFrame): DataFrame =
    groups(events)
      .transformWithState(new WritesAhead, TimeMode.EventTime(), OutputMode.Append())(
        Encoders.product[Step])
      .toDF()

  def withdraws(events: DataFrame): DataFrame =
    groups(events)
      .transformWithState(new Withdraws, TimeMode.EventTime(), OutputMode.Append())(
        Encoders.product[Step])
      .toDF()

  def visitsFrom(events: DataFrame, initial: DataFrame): DataFrame = {
    val starts = initial
      .as[Start](Encoders.product[Start])
      .groupByKey(start => start.k)(Encoders.scalaInt)
    groups(events)
      .transformWithState(new Visits, TimeMode.EventTime(), OutputMode.Append(), starts)(
        Encoders.product[Visit], Encoders.product[Start])
      .toDF()
  }

  private def transform(events: DataFrame, processor: Visits, mode: TimeMode): DataFrame =
    groups(events)
      .transformWithState(processor, mode, OutputMode.Append())(Encoders.product[Visit])
      // The operator is not the root of the plan.
      .withColumn("mean", try_divide(col("total"), col("events")))

  private def groups(events: DataFrame): KeyValueGroupedDataset[Int, Event] =
    events
      .withWatermark("ts", "10 minutes")
      .as[Event](Encoders.product[Event])
      .groupByKey(event => event.k)(Encoders.scalaInt)
}
