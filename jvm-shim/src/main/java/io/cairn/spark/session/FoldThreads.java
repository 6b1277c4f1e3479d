package io.cairn.spark.session;

import io.cairn.spark.engine.DaemonThreads;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The threads that fold committed writes into caches, at most one fold per processor at a time, so
 * that no task waits for its own.
 */
final class FoldThreads {
  private static final int IDLE_SECONDS = 10;
  private static final ThreadPoolExecutor THREADS = threads();

  private FoldThreads() {}

  private static ThreadPoolExecutor threads() {
    int count = Runtime.getRuntime().availableProcessors();
    ThreadPoolExecutor executor =
        new ThreadPoolExecutor(
            count,
            count,
            IDLE_SECONDS,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(),
            work -> DaemonThreads.of("cairn-fold", work));
    executor.allowCoreThreadTimeOut(true);
    return executor;
  }

  /** Runs a fold, which must not throw, soon. */
  static void execute(Runnable fold) {
    try {
      THREADS.execute(fold);
    } catch (OutOfMemoryError e) {
      // No thread can be started. The lock of the store must be released all the same.
      fold.run();
    }
  }

  /**
   * Runs what follows a fold and may wait for a worker, soon. Not by a thread for folds: all stores
   * whose folds come next would stay locked until then.
   */
  static void executeElsewhere(Runnable work) {
    try {
      DaemonThreads.of("cairn-close", work).start();
    } catch (OutOfMemoryError e) {
      work.run();
    }
  }
}
