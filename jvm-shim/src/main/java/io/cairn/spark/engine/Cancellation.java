package io.cairn.spark.engine;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.TaskContext;

/**
 * The cancellation of the thread's task during one wait: it is noticed within a tenth of a second,
 * and ends the wait after a grace period.
 *
 * <p>Spark interrupts the thread of a cancelled task, or only marks the task. The interrupt flag is
 * cleared meanwhile, because it would end every wait at once; {@link #close} sets it again.
 */
final class Cancellation implements AutoCloseable {
  /** A call may still end in this time: most do, and a call that ends needs no clean-up. */
  static final long CALL_GRACE_MS = 300;

  /** A commit whose outcome is known is better than one that must be found out. */
  static final long COMMIT_GRACE_MS = 20_000;

  static final int CHECK_MS = 100;

  private final TaskContext task = TaskContext.get();
  private final long graceNs;
  private boolean wasInterrupted;
  private long sinceNs;
  private boolean isCancelled;

  Cancellation(long graceMs) {
    graceNs = TimeUnit.MILLISECONDS.toNanos(graceMs);
  }

  /** Whether the task was cancelled, and the grace period is over. Clears the interrupt flag. */
  boolean isOver() {
    wasInterrupted |= Thread.interrupted();
    if (!isCancelled && (wasInterrupted || task != null && task.isInterrupted())) {
      isCancelled = true;
      sinceNs = System.nanoTime();
    }
    return isCancelled && System.nanoTime() - sinceNs >= graceNs;
  }

  /** Throws the error of a cancelled task if the wait must end. */
  void check(String what) {
    if (isOver()) {
      throw error(what);
    }
  }

  /** The error of a task that was cancelled while it waited. */
  static CairnException error(String what) {
    return CairnException.of(
        ErrorKind.RETRY, "CAIRN_CANCELLED", "the task was cancelled during " + what, null);
  }

  /**
   * Waits for a result.
   *
   * @param waitMs longest wait
   * @throws TimeoutException if there is no result by then
   * @throws CairnException if the task was cancelled; the work goes on
   */
  <T> T await(Future<T> result, long waitMs, String what)
      throws TimeoutException, ExecutionException {
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs);
    while (true) {
      check(what);
      long leftMs = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
      try {
        // After a pause of the JVM the result may be on its way: it gets some time then, too.
        long nextMs = leftMs <= 0 ? CHECK_MS : Math.min(CHECK_MS, leftMs);
        return result.get(nextMs, TimeUnit.MILLISECONDS);
      } catch (InterruptedException e) {
        wasInterrupted = true;
      } catch (TimeoutException e) {
        if (leftMs <= 0) {
          throw e;
        }
      }
    }
  }

  @Override
  public void close() {
    if (wasInterrupted) {
      Thread.currentThread().interrupt();
    }
  }
}
