package io.cairn.bench;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.expr;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.GroupState;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.OutputMode;
import scala.Tuple2;
import scala.Tuple3;

/**
 * The workload of ShuffleBench, rebuilt: records of 1,024 bytes go to consumers with a small state.
 *
 * <p>A record matches 0.2 consumers on average: here one of them, or none, where the suite's rules
 * may give several. A consumer keeps count, sum of the first longs, times of the first and the last
 * record, and the first bytes of the last record; at each tenth record it gives its state and fills
 * it with zeros, so the state never shrinks. Its first count is random. The suite's hash is
 * komihash and its state goes through Kryo; here they are Spark's xxhash64 and a column of bytes.
 */
final class ShuffleBench {
  private static final double SELECTIVITY = 0.2;
  private static final int OUTPUT_RATE = 10;
  private static final int RANDOM_BITS = 1 << 30;
  private static final int LAST_RECORD = 4 * Long.BYTES;

  private ShuffleBench() {}

  /**
   * The query over rows with a number and a time. The first rows have all consumers one by one.
   *
   * @param consumerCount number of consumers
   * @param stateBytes size of a consumer's state, 32 or more
   * @param isZipf consumer of rank r with probability proportional to 1 / r; else all alike
   */
  static Dataset<Row> query(Dataset<Row> rows, int consumerCount, int stateBytes, boolean isZipf) {
    String fraction = "pmod(xxhash64(value, 7), " + RANDOM_BITS + ") / " + RANDOM_BITS + "D";
    String rank = "floor(exp(" + fraction + " * ln(" + consumerCount + "D + 1))) - 1";
    String any = isZipf ? rank : "floor(" + fraction + " * " + consumerCount + ")";
    String isFirst = "value < " + consumerCount;
    Column consumer = expr("if(" + isFirst + ", value, " + any + ")").cast("long");
    String chance = "pmod(xxhash64(value), " + RANDOM_BITS + ") / " + RANDOM_BITS + "D";
    Column record = expr("cast(repeat(sha2(cast(value AS string), 512), 8) AS binary)");
    return rows.where(isFirst + " OR " + chance + " < " + SELECTIVITY)
        .select(consumer.as("_1"), expr("unix_millis(timestamp)").as("_2"), record.as("_3"))
        .as(Encoders.tuple(Encoders.LONG(), Encoders.LONG(), Encoders.BINARY()))
        .groupByKey((MapFunction<Tuple3<Long, Long, byte[]>, Long>) Tuple3::_1, Encoders.LONG())
        .flatMapGroupsWithState(
            consume(stateBytes),
            OutputMode.Update(),
            Encoders.BINARY(),
            Encoders.tuple(Encoders.LONG(), Encoders.BINARY()),
            GroupStateTimeout.NoTimeout())
        .select(col("_1").as("consumer"), col("_2").as("state"));
  }

  private static FlatMapGroupsWithStateFunction<
          Long, Tuple3<Long, Long, byte[]>, byte[], Tuple2<Long, byte[]>>
      consume(int stateBytes) {
    return (consumer, records, state) -> consume(consumer, records, state, stateBytes);
  }

  private static Iterator<Tuple2<Long, byte[]>> consume(
      long consumer,
      Iterator<Tuple3<Long, Long, byte[]>> records,
      GroupState<byte[]> state,
      int stateBytes) {
    byte[] bytes = state.exists() ? state.get() : new byte[stateBytes];
    ByteBuffer fields = ByteBuffer.wrap(bytes);
    if (!state.exists()) {
      fields.putLong(0, Math.floorMod(KeyStream.keyOf(consumer), OUTPUT_RATE));
    }
    List<Tuple2<Long, byte[]>> given = new ArrayList<>();
    while (records.hasNext()) {
      Tuple3<Long, Long, byte[]> record = records.next();
      fields.putLong(0, fields.getLong(0) + 1);
      fields.putLong(8, fields.getLong(8) + ByteBuffer.wrap(record._3()).getLong());
      fields.putLong(16, fields.getLong(16) == 0 ? record._2() : fields.getLong(16));
      fields.putLong(24, record._2());
      int length = Math.min(stateBytes - LAST_RECORD, record._3().length);
      System.arraycopy(record._3(), 0, bytes, LAST_RECORD, length);
      if (fields.getLong(0) == OUTPUT_RATE) {
        given.add(new Tuple2<>(consumer, bytes.clone()));
        Arrays.fill(bytes, (byte) 0);
      }
    }
    state.update(bytes);
    return given.iterator();
  }
}
