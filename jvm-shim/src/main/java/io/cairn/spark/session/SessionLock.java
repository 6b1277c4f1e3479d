package io.cairn.spark.session;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/**
 * The lock of a session's row calls and of its end. Both may come from several threads: PySpark's
 * transformWithState reads rows on another thread, and the end of the task does not wait for that
 * thread.
 *
 * <p>Optimised for callers that almost never compete. The opener is the task's thread, which opens
 * and ends the session. It enters for a row without an atomic operation, which would cost a quarter
 * of a put. Any other thread acquires the lock by a compare-and-set, which excludes all other
 * threads and the end of the session. It excludes the opener's row calls too, except in the
 * nanoseconds in which both enter. Spark never reads or writes on both threads at once, because one
 * waits for the other, unless its Python functions are pipelined: then the opener enters with a
 * fence. Not reentrant. Changes by a thread inside are visible to the next thread that enters.
 */
final class SessionLock {
  private static final long POLL_NS = TimeUnit.MICROSECONDS.toNanos(100);
  private static final VarHandle TAKEN = handle("taken");
  private static final VarHandle HAS_OPENER = handle("hasOpener");

  private final Thread opener = Thread.currentThread();
  private final boolean isAlwaysFenced;

  @SuppressWarnings("unused") // by its handle
  private boolean taken;

  /** The opener is inside, or is checking whether another thread is. */
  @SuppressWarnings("unused") // by its handle
  private boolean hasOpener;

  /**
   * @param areCallsConcurrent whether the opener and another thread may both call for rows at once
   */
  SessionLock(boolean areCallsConcurrent) {
    isAlwaysFenced = areCallsConcurrent;
  }

  private static VarHandle handle(String field) {
    try {
      return MethodHandles.lookup().findVarHandle(SessionLock.class, field, boolean.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** Waits, uninterruptibly, until no thread is inside, and enters for a row. */
  void enter() {
    if (isAlwaysFenced || Thread.currentThread() != opener) {
      enterToEnd();
      return;
    }
    HAS_OPENER.setOpaque(this, true);
    if ((boolean) TAKEN.getAcquire(this)) {
      enterAfterOthers();
    }
  }

  /** The same for the end of the session, which excludes every row call without exception. */
  void enterToEnd() {
    if (Thread.currentThread() != opener) {
      enterFromOtherThread();
      return;
    }
    HAS_OPENER.setVolatile(this, true);
    VarHandle.fullFence();
    if ((boolean) TAKEN.getVolatile(this)) {
      enterAfterOthers();
    }
  }

  private void enterFromOtherThread() {
    park(() -> TAKEN.compareAndSet(this, false, true));
    park(() -> !(boolean) HAS_OPENER.getVolatile(this));
  }

  private void enterAfterOthers() {
    do {
      HAS_OPENER.setVolatile(this, false);
      park(() -> !(boolean) TAKEN.getVolatile(this));
      HAS_OPENER.setVolatile(this, true);
    } while ((boolean) TAKEN.getVolatile(this));
  }

  private void park(BooleanSupplier until) {
    boolean interrupted = false;
    while (!until.getAsBoolean()) {
      LockSupport.parkNanos(this, POLL_NS);
      // With the flag set, the next park would not wait.
      interrupted |= Thread.interrupted();
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  void leave() {
    if (Thread.currentThread() != opener) {
      TAKEN.setRelease(this, false);
    } else {
      HAS_OPENER.setRelease(this, false);
    }
  }
}
