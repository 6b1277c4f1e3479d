package io.cairn.spark.session;

import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.util.TaskCompletionListener;

/**
 * The open sessions of the tasks that run in this JVM.
 *
 * <p>Spark gives a store to the operator that opened it, and to no other. An operator below it in
 * the same task finds the store's session here. Thread-safe.
 */
public final class TaskSessions {
  private static final ConcurrentHashMap<Key, StoreSession> OPEN = new ConcurrentHashMap<>();

  /** Attempt ids are unique in a Spark application. */
  private record Key(long taskAttempt, StateStoreId store) {}

  private TaskSessions() {}

  /** Makes a session known to the running task, until that ends. */
  public static void add(StoreSession session) {
    TaskContext task = TaskContext.get();
    if (task != null) {
      Key key = new Key(task.taskAttemptId(), session.store.id);
      OPEN.put(key, session);
      task.addTaskCompletionListener((TaskCompletionListener) ended -> OPEN.remove(key, session));
    }
  }

  /**
   * Returns the session that the task of this thread has open for a store. Null: it has none, or
   * the store is of another provider, or this thread runs no task.
   */
  public static StoreSession find(StateStoreId store) {
    TaskContext task = TaskContext.get();
    StoreSession found = task == null ? null : OPEN.get(new Key(task.taskAttemptId(), store));
    return found == null || !found.isOpen() ? null : found;
  }
}
