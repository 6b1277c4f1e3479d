package io.cairn.spark.session;

import io.cairn.spark.engine.DaemonThreads;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The threads that fold committed writes into caches. Each fold begins at once: one that waited for
 * another would keep its store locked, and the end of a fold may wait for a worker. There are never
 * more folds than stores.
 */
final class FoldThreads {
  private static final int IDLE_SECONDS = 10;
  private static final ThreadPoolExecutor THREADS =
      new ThreadPoolExecutor(
          0,
          Integer.MAX_VALUE,
          IDLE_SECONDS,
          TimeUnit.SECONDS,
          new SynchronousQueue<>(),
          work -> DaemonThreads.of("cairn-fold", work));

  private FoldThreads() {}

  /** Runs a fold, which must not throw. */
  static void execute(Runnable fold) {
    try {
      THREADS.execute(fold);
    } catch (OutOfMemoryError e) {
      // No thread can be started. The lock of the store must be released all the same.
      fold.run();
    }
  }
}
