package io.cairn.spark.session;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import java.util.Arrays;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * The lock of a store: one session holds it. Also decides when a store is closed: never while the
 * lock is held. Any thread may release it.
 */
final class StoreLock {
  private final Semaphore lock = new Semaphore(1, true);
  private final String store;
  private final int timeoutMs;
  private final Runnable closeStore;

  /** Null: no thread holds the lock. */
  private volatile Holder holder;

  private volatile boolean isClosed;

  /**
   * @param store its name, for errors
   * @param closeStore closes what the lock protects; idempotent
   */
  StoreLock(String store, int timeoutMs, Runnable closeStore) {
    this.store = store;
    this.timeoutMs = timeoutMs;
    this.closeStore = closeStore;
  }

  /** Acquires the lock, which {@link #release} releases. Fails if the store is closed. */
  void acquire() {
    requireOpen();
    try {
      if (!lock.tryAcquire(timeoutMs, TimeUnit.MILLISECONDS)) {
        throw CairnException.of(
            ErrorKind.RETRY,
            "CAIRN_BUSY",
            "store "
                + store
                + " was not released within "
                + timeoutMs
                + " ms by "
                + Holder.text(holder)
                + "; it was requested by "
                + Thread.currentThread().getName(),
            "end that task, or raise spark.sql.streaming.stateStore.cairn.lockTimeoutMs");
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw CairnException.of(
          ErrorKind.RETRY,
          "CAIRN_BUSY",
          "the task was cancelled while store " + store + " was held by " + Holder.text(holder),
          null);
    }
    holder = Holder.ofThisThread();
    try {
      requireOpen();
    } catch (CairnException e) {
      release();
      throw e;
    }
  }

  private void requireOpen() {
    if (isClosed) {
      throw CairnException.closed(store);
    }
  }

  /** Names the calling thread as the holder: it ends the session that another thread opened. */
  void takeOver() {
    holder = Holder.ofThisThread();
  }

  /** Releases the lock; closes the store if that was requested meanwhile. */
  void release() {
    holder = null;
    lock.release();
    if (isClosed) {
      closeIfFree();
    }
  }

  /** Closes the store, at once or when the lock is released. Idempotent. */
  void close() {
    isClosed = true;
    closeIfFree();
  }

  private void closeIfFree() {
    if (lock.tryAcquire()) {
      try {
        closeStore.run();
      } finally {
        // A thread that waits for the lock learns at once that the store is closed.
        lock.release();
      }
    }
  }

  /** Who holds the lock, for the error of a thread that waited in vain. */
  private record Holder(Thread thread, long sinceNs) {
    /** Frames of the holder's stack in an error: enough to see which call does not end. */
    private static final int FRAMES = 6;

    static Holder ofThisThread() {
      return new Holder(Thread.currentThread(), System.nanoTime());
    }

    /**
     * Describes a holder: its thread, whose name has Spark's task, for how long, and what it does.
     *
     * @param holder null: it has just released the lock
     */
    static String text(Holder holder) {
      return holder == null ? "a thread that has released it now" : holder.text();
    }

    private String text() {
      String trace =
          Arrays.stream(thread.getStackTrace())
              .limit(FRAMES)
              .map(StackTraceElement::toString)
              .collect(Collectors.joining(" < "));
      return thread.getName()
          + ", which acquired it "
          + (System.nanoTime() - sinceNs) / 1_000_000
          + " ms ago and "
          + (trace.isEmpty() ? "has ended" : "is at " + trace);
    }
  }
}
