package io.cairn.spark.session;

import io.cairn.spark.engine.DaemonThreads;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The fold of one session's writes into the cache. It begins while the engine commits, and need not
 * have ended when the task's commit returns. The lock of the store is held until it has ended.
 *
 * <p>Few writes are folded by the task's thread, which waits for the engine anyway: another thread
 * takes longer to wake. Many are folded by another thread, at most one fold per processor at a
 * time. An error is kept for the end, wherever the fold runs: it must not fail a commit.
 */
final class CommitFold {
  private static final int IDLE_SECONDS = 10;
  private static final ThreadPoolExecutor THREADS = threads();

  private final Runnable fold;
  private final Executor where;

  /** Null: the fold has not begun. */
  private CompletableFuture<Void> folding;

  /**
   * @param isLong whether there are so many writes that they should not keep the task waiting
   */
  CommitFold(Runnable fold, boolean isLong) {
    this.fold = fold;
    where = isLong ? CommitFold::execute : Runnable::run;
  }

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

  private static void execute(Runnable work) {
    try {
      THREADS.execute(work);
    } catch (OutOfMemoryError e) {
      // No thread can be started. The lock of the store must be released all the same.
      work.run();
    }
  }

  /** Begins the fold, unless it has begun. */
  void begin() {
    if (folding == null) {
      folding = CompletableFuture.runAsync(fold, where);
    }
  }

  /** Waits until no fold runs, whether it failed or not. An interrupt does not end the wait. */
  void await() {
    if (folding != null) {
      folding.handle((ok, error) -> ok).join();
    }
  }

  /**
   * Runs the end of the session after the fold.
   *
   * @param end gets the error of the fold, or null
   */
  void thenEnd(End end) {
    CompletableFuture<Void> last =
        folding == null ? CompletableFuture.completedFuture(null) : folding;
    last.whenCompleteAsync((ok, error) -> end.run(error), where);
  }

  /** What follows a fold. */
  interface End {
    void run(Throwable error);
  }
}
