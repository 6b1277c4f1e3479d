package io.cairn.spark.engine;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import java.util.concurrent.ThreadFactory;

/** Threads that do not keep the JVM alive. */
public final class DaemonThreads {
  /** Tests replace it by one whose threads cannot be started. */
  static volatile ThreadFactory system = Thread::new;

  private DaemonThreads() {}

  /**
   * Returns a thread that may outlive the task which needs it first: it keeps no class loader of
   * its job. Not started.
   */
  public static Thread of(String name, Runnable work) {
    Thread thread = ofTask(name, work);
    thread.setContextClassLoader(DaemonThreads.class.getClassLoader());
    return thread;
  }

  /** Returns a thread with the class loader of the calling task; not started. */
  static Thread ofTask(String name, Runnable work) {
    Thread thread = system.newThread(work);
    thread.setName(name);
    thread.setDaemon(true);
    return thread;
  }

  /**
   * Starts a thread that serves a worker. Throws an error if the system gives none; the caller then
   * undoes what it has noted for the thread.
   */
  static void start(Thread thread) {
    try {
      thread.start();
    } catch (OutOfMemoryError e) {
      throw CairnException.of(
          ErrorKind.RETRY,
          "CAIRN_WORKER_START",
          "the system did not start thread " + thread.getName() + ": " + e.getMessage(),
          "raise the container's limits of processes or memory",
          e);
    }
  }
}
