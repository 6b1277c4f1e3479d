package io.cairn.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import io.cairn.spark.engine.WorkerPool;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.HashSet;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.internal.Logging;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.junit.jupiter.api.Test;

/** The provider class as Spark uses it before a store is opened. */
class ProviderShapeTest {
  /** Trait fields and flags that the superclass's constructor sets up, without its RocksDB. */
  private static final Set<String> TRAIT_STATE =
      Set.of("unloaded", "unloaded_$eq", "maintenanceLock", "setUnloaded", "getClass");

  /** An inherited method would run Spark's RocksDB. */
  @Test
  void everyPublicMethodOfSparksProviderIsOverridden() {
    Set<String> logging = new TreeSet<>();
    for (Method method : Logging.class.getMethods()) {
      logging.add(method.getName());
    }
    Set<String> inherited = new TreeSet<>();
    for (Method method : CairnStateStoreProvider.class.getMethods()) {
      boolean isOfSpark = method.getDeclaringClass() == RocksDBStateStoreProvider.class;
      boolean isInner =
          method.getName().contains("$$")
              || method.getName().contains("$default$")
              || method.getName().contains("_setter_");
      if (isOfSpark
          && !isInner
          && !Modifier.isStatic(method.getModifiers())
          && !logging.contains(method.getName())) {
        inherited.add(method.getName());
      }
    }
    inherited.removeAll(TRAIT_STATE);

    assertEquals(Set.of(), inherited);
  }

  /** Trap 2: Spark creates many instances on the driver, only for their metrics. */
  @Test
  void trap02AnInstanceThatIsNotInitialisedStartsNothing() {
    long starts = WorkerPool.starts();
    Set<Thread> threads = Thread.getAllStackTraces().keySet();

    CairnStateStoreProvider provider = new CairnStateStoreProvider();
    provider.supportedCustomMetrics();
    provider.supportedInstanceMetrics();
    provider.doMaintenance();
    provider.close();

    assertNull(provider.stateStoreId());
    assertEquals(starts, WorkerPool.starts());
    // Threads of other tests may end meanwhile.
    Set<Thread> started = new HashSet<>(Thread.getAllStackTraces().keySet());
    started.removeAll(threads);
    started.removeIf(thread -> !thread.getName().startsWith("cairn"));
    assertEquals(Set.of(), started);
  }

  /** Trap 13: a metric that a fresh instance does not name fails the task. */
  @Test
  void trap13EveryMetricIsNamedByAFreshInstance() {
    assertEquals(
        StoreMetrics.values().length,
        new CairnStateStoreProvider().supportedCustomMetrics().length());
    assertSame(
        new CairnStateStoreProvider().supportedCustomMetrics(),
        new CairnStateStoreProvider().supportedCustomMetrics());
    assertEquals(
        "SnapshotLastUploaded",
        new CairnStateStoreProvider().supportedInstanceMetrics().head().metricPrefix());
  }
}
