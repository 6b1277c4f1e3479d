package io.cairn.spark.session;

import io.cairn.spark.engine.DaemonThreads;
import io.cairn.spark.errors.CairnException;
import java.util.Comparator;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Refills the caches of stores between their sessions: one store at a time, first the one whose
 * requests have cost most, on one thread per JVM. The thread ends when it has had nothing to do for
 * a while.
 */
final class RefillThread {
  private static final Logger LOG = LoggerFactory.getLogger(RefillThread.class);
  private static final int IDLE_SECONDS = 10;

  /** Of stores whose caches lack rows. INVARIANT: used under its own lock. */
  private static final Set<StoreRefill> WAITING = new HashSet<>();

  private static final ThreadPoolExecutor THREAD = thread();

  private RefillThread() {}

  private static ThreadPoolExecutor thread() {
    ThreadPoolExecutor executor =
        new ThreadPoolExecutor(
            1,
            1,
            IDLE_SECONDS,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(),
            work -> DaemonThreads.of("cairn-refill", work));
    executor.allowCoreThreadTimeOut(true);
    return executor;
  }

  /** Refills the cache soon, unless a session uses the store then. */
  static void offer(StoreRefill refill) {
    boolean isNew;
    synchronized (WAITING) {
      isNew = WAITING.add(refill);
    }
    if (!isNew) {
      return;
    }
    try {
      THREAD.execute(RefillThread::refillBest);
    } catch (OutOfMemoryError e) {
      // No thread can be started: the refill waits for another session's end.
      synchronized (WAITING) {
        WAITING.remove(refill);
      }
    }
  }

  private static void refillBest() {
    StoreRefill best;
    synchronized (WAITING) {
      best = WAITING.stream().max(Comparator.comparingLong(StoreRefill::paidRows)).orElse(null);
      WAITING.remove(best);
    }
    if (best == null) {
      return;
    }
    try {
      best.refillIfIdle();
    } catch (CairnException e) {
      // The cache stays incomplete, and the next session reads through the engine.
      LOG.info("the refill of a cache failed: {}", e.getMessage());
    } catch (RuntimeException | OutOfMemoryError e) {
      // An OutOfMemoryError that is not caught would end a Spark executor.
      LOG.warn("the refill of a cache failed", e);
    }
  }
}
