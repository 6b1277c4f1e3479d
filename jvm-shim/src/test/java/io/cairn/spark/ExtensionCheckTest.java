package io.cairn.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.function.UnaryOperator;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.classic.SparkSession;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import scala.Function1;
import scala.runtime.BoxedUnit;

/** Whoever loads the extension, by setting or by program, is not asked to set it. */
class ExtensionCheckTest {
  private static final String EXTENSION = "io.cairn.spark.CairnExtensions";

  enum Loaded {
    NOT(builder -> builder),
    BY_SETTING(builder -> builder.config("spark.sql.extensions", EXTENSION)),
    BY_PROGRAM(builder -> builder.withExtensions(extension()));

    private final UnaryOperator<SparkSession.Builder> load;

    Loaded(UnaryOperator<SparkSession.Builder> load) {
      this.load = load;
    }
  }

  /** A Scala class, which is compiled after the Java sources. */
  @SuppressWarnings("unchecked")
  private static Function1<SparkSessionExtensions, BoxedUnit> extension() {
    try {
      return (Function1<SparkSessionExtensions, BoxedUnit>)
          Class.forName(EXTENSION).getConstructor().newInstance();
    } catch (ReflectiveOperationException e) {
      throw new AssertionError(e);
    }
  }

  @ParameterizedTest
  @EnumSource
  void theRulesOfASessionAreFoundHoweverTheyCame(Loaded how) {
    SparkSession session =
        how.load
            .apply(
                SparkSession.builder()
                    .master("local[1]")
                    .config("spark.ui.enabled", "false")
                    .config("spark.driver.host", "127.0.0.1")
                    .config("spark.driver.bindAddress", "127.0.0.1"))
            .getOrCreate();
    try {
      assertEquals(how != Loaded.NOT, ExtensionCheck.hasRules(session));
    } finally {
      session.stop();
    }
  }
}
