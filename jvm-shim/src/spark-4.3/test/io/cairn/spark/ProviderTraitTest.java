package io.cairn.spark;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.junit.jupiter.api.Test;

/** The fields that Spark 4.3 added to the trait of a provider. */
class ProviderTraitTest {
  /**
   * Trap 1: without the trait's initialiser every maintenance pass dies with a
   * NullPointerException.
   */
  @Test
  void trap01TheTraitIsInitialised() {
    StateStoreProvider provider = new CairnStateStoreProvider();

    assertNotNull(provider.maintenanceLock());
    assertFalse(provider.unloaded());
  }
}
