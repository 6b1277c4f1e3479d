package io.cairn.spark.minor;

import java.io.Serializable;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.execution.python.PandasGroupUtils;
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef;
import org.apache.spark.sql.internal.SessionState;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.CompletionIterator;
import org.apache.spark.util.SerializableConfiguration;
import scala.Function0;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.runtime.BoxedUnit;

/** What Spark's operators of Python share, and scalac, unlike javac, refuses to give to others. */
public final class BulkPython {
  private BulkPython() {}

  public static SessionState sessionState(TransformWithStateInPySparkExec operator) {
    return operator.session().sqlContext().sessionState();
  }

  public static StateStoreCoordinatorRef coordinator(TransformWithStateInPySparkExec operator) {
    return operator.session().streams().stateStoreCoordinator();
  }

  public static StructType keyRow(TransformWithStateInPySparkExec operator) {
    return operator.schemaForKeyRow();
  }

  public static StructType valueRow(TransformWithStateInPySparkExec operator) {
    return operator.schemaForValueRow();
  }

  /** Hadoop's settings, which go to the executors once. */
  public interface HadoopConf extends Serializable {
    Configuration get();
  }

  public static HadoopConf hadoopConf(TransformWithStateInPySparkExec operator) {
    Broadcast<SerializableConfiguration> conf =
        SerializableConfiguration.broadcast(
            operator.sparkContext(), operator.session().sessionState().newHadoopConf());
    return () -> conf.value().value();
  }

  /** The attributes of the worker's rows, and which of them are the key and which the values. */
  public static Tuple2<Seq<Attribute>, int[]> argOffsets(
      SparkPlan child, Seq<Attribute> groupingAttributes) {
    return PandasGroupUtils.resolveArgOffsets(child.output(), groupingAttributes);
  }

  /** The id of the session's artifacts, if there are any. */
  public static Option<String> jobArtifacts() {
    return MapInArrow.jobArtifacts();
  }

  /** The settings of Python's workers. */
  public static Map<String, String> runnerConf(TransformWithStateInPySparkExec operator) {
    return ArrowPythonRunner.getPythonRunnerConfMap(operator.conf());
  }

  public static Iterator<InternalRow> withoutLate(
      TransformWithStateInPySparkExec operator, Iterator<InternalRow> rows, BasePredicate isLate) {
    return operator.applyRemovingRowsOlderThanWatermark(rows, isLate);
  }

  /** The rows in the order of their keys, projected to the attributes of the worker's rows. */
  public static Iterator<InternalRow> grouped(
      Iterator<InternalRow> rows,
      SparkPlan child,
      Seq<Attribute> groupingAttributes,
      Seq<Attribute> projected) {
    return PandasGroupUtils.groupAndProject(rows, groupingAttributes, child.output(), projected)
        .flatMap(group -> group._2());
  }

  /** The Python program of the query's workers. */
  public static String pythonExec(TransformWithStateInPySparkExec operator) {
    return MapInArrow.function(operator.functionExpr()).pythonExec();
  }

  /** The pickle of the user's function and of the type of its rows. */
  public static byte[] command(TransformWithStateInPySparkExec operator) {
    return MapInArrow.command(operator.functionExpr());
  }

  /** The rows that a worker makes of batches of rows: each row is a struct in the only column. */
  public static Iterator<InternalRow> run(
      TransformWithStateInPySparkExec operator,
      Iterator<Iterator<InternalRow>> batches,
      byte[] command,
      StructType schema,
      String zone,
      boolean largeVarTypes,
      Map<String, String> conf,
      Option<String> artifacts) {
    ArrowPythonRunner runner =
        MapInArrow.runner(
            operator.functionExpr(),
            command,
            schema,
            zone,
            largeVarTypes,
            conf,
            operator.pythonMetrics(),
            artifacts);
    return PandasGroupUtils.executePython(batches, operator.output(), runner);
  }

  /** The rows, after whose end {@code end} is called. */
  public static Iterator<InternalRow> ending(Iterator<InternalRow> rows, Runnable end) {
    return CompletionIterator.apply(rows, function(end));
  }

  public static long timeTakenMs(TransformWithStateInPySparkExec operator, Runnable body) {
    return operator.timeTakenMs(function(body));
  }

  private static Function0<BoxedUnit> function(Runnable body) {
    return () -> {
      body.run();
      return BoxedUnit.UNIT;
    };
  }

  /** Adds the metrics of the store and of the operator, as Spark's operator does at its end. */
  public static void setMetrics(TransformWithStateInPySparkExec operator, StateStore store) {
    operator.setStoreMetrics(store, operator.isStreaming());
    operator.setOperatorMetrics(1);
  }
}
