package io.cairn.suites;

import static net.bytebuddy.matcher.ElementMatchers.namedOneOf;

import java.lang.instrument.Instrumentation;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.description.modifier.Visibility;
import net.bytebuddy.dynamic.DynamicType;
import net.bytebuddy.implementation.FieldAccessor;

/**
 * Adds what Spark 4.3 asks of a provider to the providers in the test classes of Spark 4.2.
 *
 * <p>Without these members the constructor of such a provider fails, and so does each test that
 * uses it, whatever the provider under test. The members have no effect of their own: two fields,
 * with the accessors that Scala makes for the fields of a trait.
 */
final class NewerMembers {
  private static final String STATE = "org.apache.spark.sql.execution.streaming.state.";
  private static final String TRAIT = STATE + "StateStoreProvider";
  private static final String[] PROVIDERS_OF_TESTS = {
    "org.apache.spark.sql.streaming.TestStateStoreProvider",
    STATE + "CkptIdCollectingStateStoreProviderWrapper",
    STATE + "FakeStateStoreProviderTracksCloseThread",
    STATE + "FakeStateStoreProviderWithMaintenanceError",
    STATE + "SignalingStateStoreProvider",
  };

  private NewerMembers() {}

  static void installOn(Instrumentation instrumentation) {
    new AgentBuilder.Default()
        .type(namedOneOf(PROVIDERS_OF_TESTS))
        .transform((builder, type, loader, module, domain) -> withMembers(builder))
        .installOn(instrumentation);
  }

  private static DynamicType.Builder<?> withMembers(DynamicType.Builder<?> builder) {
    String setLock = TRAIT.replace('.', '$') + "$_setter_$maintenanceLock_$eq";
    return builder
        .defineField("isUnloaded", boolean.class, Visibility.PRIVATE)
        .defineField("lock", ReentrantReadWriteLock.class, Visibility.PRIVATE)
        .defineMethod("unloaded", boolean.class, Visibility.PUBLIC)
        .intercept(FieldAccessor.ofField("isUnloaded"))
        .defineMethod("unloaded_$eq", void.class, Visibility.PUBLIC)
        .withParameters(boolean.class)
        .intercept(FieldAccessor.ofField("isUnloaded"))
        .defineMethod("maintenanceLock", ReentrantReadWriteLock.class, Visibility.PUBLIC)
        .intercept(FieldAccessor.ofField("lock"))
        .defineMethod(setLock, void.class, Visibility.PUBLIC)
        .withParameters(ReentrantReadWriteLock.class)
        .intercept(FieldAccessor.ofField("lock"));
  }
}
