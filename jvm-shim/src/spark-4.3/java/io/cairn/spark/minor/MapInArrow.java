package io.cairn.spark.minor;

import java.util.List;
import org.apache.spark.JobArtifactSet;
import org.apache.spark.api.python.ChainedPythonFunctions;
import org.apache.spark.api.python.PythonEvalType;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Python workers that run a function of Cairn's, around the user's, as one of `mapInArrow`. */
final class MapInArrow {
  private MapInArrow() {}

  /** The user's function of an operator. */
  static SimplePythonFunction function(Expression udf) {
    return (SimplePythonFunction) ((PythonUDF) udf).func();
  }

  /** The pickle of the user's function and of the type of its rows. */
  static byte[] command(Expression udf) {
    Seq<Object> command = function(udf).command();
    byte[] bytes = new byte[command.length()];
    int i = 0;
    for (Object one : CollectionConverters.asJava(command)) {
      bytes[i++] = (Byte) one;
    }
    return bytes;
  }

  /** The id of the session's artifacts, if there are any. */
  static Option<String> jobArtifacts() {
    return JobArtifactSet.getCurrentJobArtifactState().map(state -> state.uuid());
  }

  /**
   * Spark's runner of a worker. Each iterator of rows that it is given becomes one Arrow batch.
   *
   * @param udf the user's function, whose Python and environment the worker has
   * @param command the pickle of the function that the worker runs
   * @param schema one column, a struct of those of the function's batches
   */
  static ArrowPythonRunner runner(
      Expression udf,
      byte[] command,
      StructType schema,
      String zone,
      boolean largeVarTypes,
      Map<String, String> conf,
      Map<String, SQLMetric> metrics,
      Option<String> artifacts) {
    SimplePythonFunction users = function(udf);
    SimplePythonFunction own =
        new SimplePythonFunction(
            command,
            users.envVars(),
            users.pythonIncludes(),
            users.pythonExec(),
            users.pythonVer(),
            users.broadcastVars(),
            users.accumulator());
    ChainedPythonFunctions chain = new ChainedPythonFunctions(seq(own));
    Object id = ((PythonUDF) udf).resultId().id();
    return new ArrowPythonRunner(
        seq(new Tuple2<>(chain, id)),
        PythonEvalType.SQL_MAP_ARROW_ITER_UDF(),
        new int[][] {{0}},
        schema,
        zone,
        largeVarTypes,
        conf,
        metrics,
        artifacts,
        Option.empty());
  }

  private static <T> Seq<T> seq(T one) {
    return CollectionConverters.asScala(List.of(one)).toSeq();
  }
}
