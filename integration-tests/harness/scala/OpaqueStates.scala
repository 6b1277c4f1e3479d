package io.cairn.tests

import org.apache.spark.sql.{DataFrame, Encoder, Encoders, KeyValueGroupedDataset}
import org.apache.spark.sql.streaming.{
  GroupState, GroupStateTimeout, ListState, MapState, OutputMode, StatefulProcessor, TTLConfig,
  TimeMode, TimerValues, ValueState}

/** A class of which Spark knows no columns. */
class Bag(val names: Set[String], val numbers: Seq[Long]) extends Serializable {
  def add(rows: Seq[Event]): Bag = new Bag(names ++ rows.flatMap(_.name), numbers ++ rows.map(_.v))
}

/** Keeps objects in all kinds of variables, by Kryo and by Java's serialization. */
class Bags extends StatefulProcessor[Int, Event, Step] {
  private implicit val kryo: Encoder[Bag] = Encoders.kryo[Bag]
  private var bag: ValueState[Bag] = _
  private var bags: ListState[Bag] = _
  private var named: MapState[String, Bag] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    val java = Encoders.javaSerialization[Bag]
    bag = getHandle.getValueState[Bag]("bag", TTLConfig.NONE)
    bags = getHandle.getListState[Bag]("bags", TTLConfig.NONE)(java)
    named = getHandle.getMapState[String, Bag]("named", TTLConfig.NONE)(Encoders.STRING, kryo)
  }

  override def handleInputRows(
      key: Int,
      rows: Iterator[Event],
      timers: TimerValues): Iterator[Step] = {
    val present = rows.toSeq.sortBy(row => (row.v, row.name.getOrElse("")))
    val empty = new Bag(Set.empty, Nil)
    val now = (if (bag.exists()) bag.get() else empty).add(present)
    bag.update(now)
    bags.appendValue(empty.add(present))
    present.flatMap(_.name).foreach(name => named.updateValue(name, now))
    Iterator(Step(key, "bag", now.numbers.size))
  }
}

/** Plans whose state is opaque: Spark's schemas of it have one column of bytes. */
object OpaqueStates {
  def variables(events: DataFrame): DataFrame =
    groups(events)
      .transformWithState(new Bags, TimeMode.None(), OutputMode.Append())(Encoders.product[Step])
      .toDF()

  def groupState(events: DataFrame): DataFrame =
    groups(events)
      .flatMapGroupsWithState(OutputMode.Update(), GroupStateTimeout.NoTimeout())(addToBag)(
        Encoders.kryo[Bag], Encoders.product[Step])
      .toDF()

  private def addToBag(
      key: Int, rows: Iterator[Event], state: GroupState[Bag]): Iterator[Step] = {
    val now = state.getOption.getOrElse(new Bag(Set.empty, Nil)).add(rows.toSeq)
    state.update(now)
    Iterator(Step(key, "bag", now.numbers.size))
  }

  private def groups(events: DataFrame): KeyValueGroupedDataset[Int, Event] =
    events
      .as[Event](Encoders.product[Event])
      .groupByKey(event => event.k)(Encoders.scalaInt)
}
