package io.cairn.spark.minor;

import java.io.Serializable;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.execution.python.streaming.FlatMapGroupsInPandasWithStateExec;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Map;

/** The Python workers of an operator; scalac, unlike javac, refuses these classes to others. */
public final class ArrowStatePython implements Serializable {
  private static final long serialVersionUID = 1;

  private final Expression udf;
  private final String zone;
  private final boolean largeVarTypes;
  private final Map<String, String> conf;
  private final Map<String, SQLMetric> metrics;
  private final Option<String> artifacts;

  /** Takes what the tasks need; the driver calls it as it plans a batch. */
  public ArrowStatePython(FlatMapGroupsInPandasWithStateExec operator) {
    udf = operator.functionExpr();
    zone = operator.conf().sessionLocalTimeZone();
    largeVarTypes = operator.conf().arrowUseLargeVarTypes();
    conf = ArrowPythonRunner.getPythonRunnerConfMap(operator.conf());
    metrics = operator.pythonMetrics();
    artifacts = MapInArrow.jobArtifacts();
  }

  /** Whether a column of the input has a watermark. */
  public static boolean hasWatermark(FlatMapGroupsInPandasWithStateExec operator) {
    return operator.watermarkPresent();
  }

  /** The pickle of the user's function and of the type of its rows. */
  public byte[] command() {
    return MapInArrow.command(udf);
  }

  /** The batches that a worker of this task makes of batches of rows. */
  public Iterator<ColumnarBatch> compute(
      Iterator<Iterator<InternalRow>> batches, byte[] command, StructType schema) {
    TaskContext task = TaskContext.get();
    return MapInArrow.runner(udf, command, schema, zone, largeVarTypes, conf, metrics, artifacts)
        .compute(batches, task.partitionId(), task);
  }
}
