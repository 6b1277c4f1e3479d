package io.cairn.spark.engine;

/** Threads that outlive the task which needs them first: they keep no class loader of its job. */
public final class DaemonThreads {
  private DaemonThreads() {}

  /** Returns a thread that does not keep the JVM alive; not started. */
  public static Thread of(String name, Runnable work) {
    Thread thread = new Thread(work, name);
    thread.setDaemon(true);
    thread.setContextClassLoader(DaemonThreads.class.getClassLoader());
    return thread;
  }
}
