package io.cairn.suites;

import static net.bytebuddy.matcher.ElementMatchers.named;

import java.lang.instrument.Instrumentation;
import java.lang.reflect.Method;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;

/**
 * Makes tests fail that would end the run, and does for Cairn what Spark's provider does in tests.
 *
 * <p>A test class of Spark 4.2 may call a method that Spark 4.3 has changed. scalatest then aborts
 * the whole suite; here the test fails, under the control too, and the next one runs.
 *
 * <p>In tests of Avro, Spark's provider reports each declared column family to the schema provider
 * of the test, because no driver has written a schema file. The agent does so for Cairn.
 */
final class TestConduct {
  private static final String FAMILIES = "io.cairn.spark.session.ColumnFamilies";
  private static final String SCHEMAS_OF_TESTS =
      "org.apache.spark.sql.execution.streaming.state.TestStateSchemaProvider";

  private TestConduct() {}

  static void installOn(Instrumentation instrumentation) {
    new AgentBuilder.Default()
        .disableClassFormatChanges()
        .type(named("org.scalatest.Suite$"))
        .transform(
            (builder, type, loader, module, domain) ->
                builder.visit(
                    Advice.to(OnAbort.class).on(named("anExceptionThatShouldCauseAnAbort"))))
        .type(named(FAMILIES))
        .transform(
            (builder, type, loader, module, domain) ->
                builder.visit(Advice.to(OnDeclare.class).on(named("declare"))))
        .installOn(instrumentation);
  }

  /** Inlined into scalatest's question whether an error of a test ends the suite. */
  public static final class OnAbort {
    private OnAbort() {}

    @Advice.OnMethodExit
    static void exit(
        @Advice.Argument(0) Throwable error, @Advice.Return(readOnly = false) boolean isAbort) {
      isAbort = isAbort && !(error instanceof LinkageError);
    }
  }

  /** Inlined into Cairn's declaration of a column family. */
  public static final class OnDeclare {
    private OnDeclare() {}

    @Advice.OnMethodEnter
    static void enter(
        @Advice.FieldValue("schemas") Object schemas, @Advice.Argument(0) Object spec) {
      Schemas.capture(schemas, spec);
    }
  }

  /** Reports families to a test's schema provider. By reflection: the agent is older than Spark. */
  public static final class Schemas {
    private Schemas() {}

    /** Reports {@code spec}, a FamilySpec, if {@code schemas}, an Option, has those of a test. */
    public static void capture(Object schemas, Object spec) {
      try {
        if (!(boolean) schemas.getClass().getMethod("isDefined").invoke(schemas)) {
          return;
        }
        Object provider = schemas.getClass().getMethod("get").invoke(schemas);
        if (provider.getClass().getName().equals(SCHEMAS_OF_TESTS)) {
          for (Method method : provider.getClass().getMethods()) {
            if (method.getName().equals("captureSchema")) {
              method.invoke(
                  provider,
                  value(spec, "name"),
                  value(spec, "keySchema"),
                  value(spec, "valueSchema"),
                  (short) 0,
                  (short) 0);
            }
          }
        }
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }

    private static Object value(Object spec, String name) throws ReflectiveOperationException {
      return spec.getClass().getMethod(name).invoke(spec);
    }
  }
}
