package io.cairn.spark;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.minor.SparkApi;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Names the setting that {@code transformWithState} needs.
 *
 * <p>Without the extension Spark's operator refuses Cairn, and its error recommends another
 * provider. Before that Spark asks a provider for the names of its metrics, on the driver.
 */
final class ExtensionCheck {
  private static final String EXTENSIONS = "spark.sql.extensions";

  // By name: they are Scala classes, and the Java sources are compiled before the Scala ones.
  private static final String CLASS = "io.cairn.spark.CairnExtensions";
  private static final String RULE = "io.cairn.spark.extension.PhysicalRule";

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
    return SparkSession.getActiveSession().forall(ExtensionCheck::hasRules);
  }

  /** Whether a session has the rules of the extension: withExtensions() needs no setting. */
  static boolean hasRules(SparkSession session) {
    return session
        .sessionState()
        .columnarRules()
        .exists(rule -> rule.getClass().getName().equals(RULE));
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
