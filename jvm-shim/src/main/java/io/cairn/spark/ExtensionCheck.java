package io.cairn.spark;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.minor.SparkApi;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Names the setting that {@code transformWithState} needs.
 *
 * <p>Without the extension Spark's operator refuses Cairn, and its error recommends another
 * provider. Before that Spark asks a provider for the names of its metrics, on the driver.
 */
final class ExtensionCheck {
  private static final String EXTENSIONS = "spark.sql.extensions";

  /** By name: it is a Scala class, and the Java sources are compiled before the Scala ones. */
  private static final String CLASS = "io.cairn.spark.CairnExtensions";

  private static final String OPERATOR = "TransformWithStateExecBase";
  private static final String STREAM = "MicroBatchExecution";

  private ExtensionCheck() {}

  /**
   * Throws if {@code transformWithState} asks, in a streaming query of a session that uses Cairn
   * without its extension.
   *
   * @param provider the class of Cairn's provider
   */
  static void requireForTransformWithState(Class<?> provider) {
    boolean isCairn = SQLConf.get().stateStoreProviderClass().equals(provider.getName());
    if (SparkApi.IS_TRANSFORM_RESTRICTED
        && isCairn
        && !hasExtension()
        && isAskedByTransformWithState()) {
      throw CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_EXTENSION_MISSING",
          "transformWithState runs on Cairn only with " + EXTENSIONS + "=" + CLASS,
          "set it before the session is created; cairn.spark_conf() does. Spark's own provider"
              + " needs no extension");
    }
  }

  private static boolean hasExtension() {
    return SparkSession.getActiveSession()
        .forall(session -> session.conf().get(EXTENSIONS, "").contains(CLASS));
  }

  private static boolean isAskedByTransformWithState() {
    return StackWalker.getInstance()
        .walk(
            frames ->
                frames
                        .map(StackWalker.StackFrame::getClassName)
                        .map(name -> name.substring(name.lastIndexOf('.') + 1))
                        .filter(name -> name.equals(OPERATOR) || name.equals(STREAM))
                        .distinct()
                        .count()
                    == 2);
  }
}
