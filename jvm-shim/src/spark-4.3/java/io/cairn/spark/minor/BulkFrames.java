package io.cairn.spark.minor;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.execution.python.streaming.ListStateInfo;
import org.apache.spark.sql.execution.python.streaming.MapStateInfo;
import org.apache.spark.sql.execution.python.streaming.ValueStateInfo;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.ImplicitGroupingKeyTracker;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImpl;
import org.apache.spark.sql.types.StructType;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.mutable.HashMap;

/**
 * Applies the frames of a worker to Spark's own objects of a task's state: encodings, times to
 * live, metrics and checks are Spark's.
 *
 * <pre>
 * frame     i32 kind, i32 length, content
 * keys      0: i32 count, rows        names the keys that come next 0, 1, ... ; no answer
 * read      1: i32 first key, i32 key count, u8 what, text name, row of a map's key
 *           what: 0 value, 1 list, 2 entry of a map, 3 timers
 *           answer: i32 count n, i32 length, n items, at most those that fit, at least one
 * write     2: u8 name count, texts, i32 op count, ops
 *           answer: i32 0
 * expired   3: i64 timestamp, u8 is it the first page
 *           answer: i32 count n, i32 length, u8 is there more, n of {row, i64 timestamp};
 *           their keys come next, named 0, 1, ...
 * op        i32 key, u8 name, u8 what, content
 *           what: value 1 update (row), 2 clear; list 3 append (row), 4 append all (i32 count,
 *           rows), 5 put (as 4), 6 clear; map 7 update (two rows), 8 remove (row), 9 clear;
 *           timer 10 register (i64), 11 delete (i64)
 * item      value, entry of a map: row | list: i32 count, rows | timers: i32 count, i64s
 *           a count is -1 where there are more than an item may have
 * text      i16 length, UTF-8
 * </pre>
 *
 * Instead of an answer a count of -1 comes with the i32 length and the text of an error. Rows are
 * those of {@link BulkRows}. Not thread-safe.
 */
final class BulkFrames {
  private static final int KEYS = 0;
  private static final int READ = 1;
  private static final int WRITE = 2;
  private static final int ANSWER_BYTES = 1 << 20;
  private static final int ITEM_ROWS = 1000;
  private static final int ITEM_BYTES = 1 << 16;
  private static final int OF_VALUE = 0;
  private static final int OF_LIST = 1;
  private static final int OF_MAP = 2;
  private static final int VALUE_UPDATE = 1;
  private static final int VALUE_CLEAR = 2;
  private static final int LIST_APPEND = 3;
  private static final int LIST_PUT = 5;
  private static final int LIST_CLEAR = 6;
  private static final int MAP_UPDATE = 7;
  private static final int MAP_REMOVE = 8;
  private static final int MAP_CLEAR = 9;
  private static final int TIMER_REGISTER = 10;
  private static final int TIMER_DELETE = 11;

  private final StatefulProcessorHandleImpl handle;
  private final HashMap<String, ValueStateInfo> values;
  private final HashMap<String, ListStateInfo> lists;
  private final HashMap<String, MapStateInfo> maps;
  private final int maxRecords;
  private final BulkRows keyRows;
  private final Map<StructType, BulkRows> codecs = new IdentityHashMap<>();
  private final ByteArrayOutputStream items = new ByteArrayOutputStream();
  private Row[] keys = {};
  private Iterator<Tuple2<Object, Object>> expired;

  BulkFrames(
      StatefulProcessorHandleImpl handle,
      BulkRows keyRows,
      int maxRecords,
      HashMap<String, ValueStateInfo> values,
      HashMap<String, ListStateInfo> lists,
      HashMap<String, MapStateInfo> maps) {
    this.handle = handle;
    this.keyRows = keyRows;
    this.maxRecords = maxRecords;
    this.values = values;
    this.lists = lists;
    this.maps = maps;
  }

  /**
   * Applies a frame and writes its answer.
   *
   * @return whether it could; if not, the answer is an error
   */
  boolean apply(int kind, byte[] content, DataOutputStream out) throws IOException {
    ByteBuffer in = ByteBuffer.wrap(content);
    // A message of Spark that sets the key anew would end the iterators of the key.
    scala.Option<Object> before = ImplicitGroupingKeyTracker.getImplicitKeyOption();
    try {
      switch (kind) {
        case KEYS -> setKeys(in);
        case READ -> read(in, out);
        case WRITE -> write(in, out);
        default -> expired(in, out);
      }
      return true;
    } catch (Exception error) { // Scala's methods declare none
      byte[] message = String.valueOf(error.getMessage()).getBytes(StandardCharsets.UTF_8);
      out.writeInt(-1);
      out.writeInt(message.length);
      out.write(message);
      return false;
    } finally {
      if (before.isDefined()) {
        ImplicitGroupingKeyTracker.setImplicitKey(before.get());
      } else {
        ImplicitGroupingKeyTracker.removeImplicitKey();
      }
    }
  }

  private void setKeys(ByteBuffer in) {
    Row[] next = new Row[in.getInt()];
    for (int i = 0; i < next.length; i++) {
      next[i] = keyRows.read(in);
    }
    keys = next;
  }

  private void read(ByteBuffer in, DataOutputStream out) throws IOException {
    int first = in.getInt();
    int most = Math.min(in.getInt(), keys.length - first);
    Item item = item(in.get(), text(in), in);
    items.reset();
    DataOutputStream answer = new DataOutputStream(items);
    int count = 0;
    while (count < most && (count == 0 || items.size() < ANSWER_BYTES)) {
      setKey(first + count);
      item.write(answer);
      count++;
    }
    out.writeInt(count);
    out.writeInt(items.size());
    items.writeTo(out);
  }

  private void setKey(int number) {
    ImplicitGroupingKeyTracker.setImplicitKey(keys[number]);
  }

  /** Writes what is read for the present key. */
  private interface Item {
    void write(DataOutputStream out) throws IOException;
  }

  private Item item(int what, String name, ByteBuffer in) {
    switch (what) {
      case OF_VALUE -> {
        ValueStateInfo info = values.apply(name);
        BulkRows rows = rows(info.schema(), info.deserializer());
        return out -> rows.write(info.valueState().get(), out);
      }
      case OF_LIST -> {
        ListStateInfo info = lists.apply(name);
        BulkRows rows = rows(info.schema(), info.deserializer());
        return out -> writeAll(info.listState().get(), rows::write, out);
      }
      case OF_MAP -> {
        MapStateInfo info = maps.apply(name);
        Row key = rows(info.keySchema(), info.keyDeserializer()).read(in);
        BulkRows rows = rows(info.valueSchema(), info.valueDeserializer());
        return out -> rows.write(info.mapState().getValue(key), out);
      }
      default -> {
        return out ->
            writeAll(handle.listTimers(), (time, item) -> item.writeLong((Long) time), out);
      }
    }
  }

  private interface Writer<T> {
    void write(T one, DataOutputStream out) throws IOException;
  }

  /** Writes all that an iterator has after its count; -1 alone if that is much. */
  private <T> void writeAll(Iterator<T> iterator, Writer<T> writer, DataOutputStream out)
      throws IOException {
    ByteArrayOutputStream item = new ByteArrayOutputStream();
    DataOutputStream itemOut = new DataOutputStream(item);
    int count = 0;
    while (iterator.hasNext()) {
      if (count == ITEM_ROWS || item.size() >= ITEM_BYTES) {
        out.writeInt(-1);
        return;
      }
      writer.write(iterator.next(), itemOut);
      count++;
    }
    out.writeInt(count);
    item.writeTo(out);
  }

  private void write(ByteBuffer in, DataOutputStream out) throws IOException {
    String[] names = new String[in.get() & 0xff];
    for (int i = 0; i < names.length; i++) {
      names[i] = text(in);
    }
    int count = in.getInt();
    int before = -1;
    for (int i = 0; i < count; i++) {
      int key = in.getInt();
      if (key != before) {
        setKey(key);
        before = key;
      }
      int name = in.get() & 0xff;
      apply(in.get(), name < names.length ? names[name] : null, in);
    }
    out.writeInt(0);
  }

  private void apply(int op, String name, ByteBuffer in) {
    switch (op) {
      case TIMER_REGISTER -> handle.registerTimer(in.getLong());
      case TIMER_DELETE -> handle.deleteTimer(in.getLong());
      case VALUE_UPDATE, VALUE_CLEAR -> applyToValue(op, values.apply(name), in);
      case MAP_UPDATE, MAP_REMOVE, MAP_CLEAR -> applyToMap(op, maps.apply(name), in);
      default -> applyToList(op, lists.apply(name), in);
    }
  }

  private void applyToValue(int op, ValueStateInfo info, ByteBuffer in) {
    if (op == VALUE_CLEAR) {
      info.valueState().clear();
    } else {
      info.valueState().update(rows(info.schema(), info.deserializer()).read(in));
    }
  }

  private void applyToList(int op, ListStateInfo info, ByteBuffer in) {
    if (op == LIST_CLEAR) {
      info.listState().clear();
      return;
    }
    BulkRows rows = rows(info.schema(), info.deserializer());
    if (op == LIST_APPEND) {
      info.listState().appendValue(rows.read(in));
      return;
    }
    Row[] all = new Row[in.getInt()];
    for (int i = 0; i < all.length; i++) {
      all[i] = rows.read(in);
    }
    if (op == LIST_PUT) {
      info.listState().put(all);
    } else {
      info.listState().appendList(all);
    }
  }

  private void applyToMap(int op, MapStateInfo info, ByteBuffer in) {
    if (op == MAP_CLEAR) {
      info.mapState().clear();
      return;
    }
    Row key = rows(info.keySchema(), info.keyDeserializer()).read(in);
    if (op == MAP_REMOVE) {
      info.mapState().removeKey(key);
    } else {
      BulkRows rows = rows(info.valueSchema(), info.valueDeserializer());
      info.mapState().updateValue(key, rows.read(in));
    }
  }

  /** Gives a page of the expired timers, as many as a page of Spark has. */
  private void expired(ByteBuffer in, DataOutputStream out) throws IOException {
    long timestampMs = in.getLong();
    if (in.get() != 0) {
      expired = handle.getExpiredTimers(timestampMs, handle.getExpiredTimers$default$2());
    }
    items.reset();
    DataOutputStream page = new DataOutputStream(items);
    List<Row> next = new ArrayList<>();
    while (next.size() < maxRecords && expired.hasNext()) {
      Tuple2<Object, Object> timer = expired.next();
      Row key = (Row) timer._1();
      keyRows.write(key, page);
      page.writeLong((Long) timer._2());
      next.add(key);
    }
    keys = next.toArray(new Row[0]);
    out.writeInt(keys.length);
    out.writeInt(1 + items.size());
    out.writeBoolean(expired.hasNext());
    items.writeTo(out);
  }

  private BulkRows rows(StructType schema, ExpressionEncoder.Deserializer<Row> deserializer) {
    return codecs.computeIfAbsent(schema, made -> new BulkRows(made, deserializer));
  }

  private static String text(ByteBuffer in) {
    byte[] bytes = new byte[in.getShort()];
    in.get(bytes);
    return new String(bytes, StandardCharsets.UTF_8);
  }
}
