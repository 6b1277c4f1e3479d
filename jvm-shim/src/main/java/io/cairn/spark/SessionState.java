package io.cairn.spark;

import org.apache.spark.sql.execution.streaming.state.StateStoreErrors;

/** Fate of a session. It moves once, from OPEN, and then stays. */
enum SessionState {
  OPEN,
  COMMITTED,
  ABORTED,
  RELEASED;

  /** Refuses work on a session that has ended. */
  void requireOpen(String operation) {
    if (this != OPEN) {
      throw StateStoreErrors.stateStoreOperationOutOfOrder(
          "Cannot "
              + operation
              + " after the store was "
              + name().toLowerCase(java.util.Locale.ROOT));
    }
  }
}
