package io.cairn.spark;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * One at a time of a session's row calls and its end, whichever threads they are on: PySpark's
 * transformWithState reads rows on a thread of its own, and the end of the task does not wait for
 * it.
 *
 * <p>Made for callers that practically never meet: entering costs one compare-and-set. Not
 * reentrant. Whoever leaves publishes what it did to whoever enters next.
 */
final class RowGate {
  private static final long POLL_NS = TimeUnit.MICROSECONDS.toNanos(100);
  private static final VarHandle TAKEN;

  static {
    try {
      TAKEN = MethodHandles.lookup().findVarHandle(RowGate.class, "taken", boolean.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  @SuppressWarnings("unused") // by its handle
  private boolean taken;

  /** Waits, uninterrupted, until nobody is inside, and enters. */
  void enter() {
    if (!TAKEN.compareAndSet(this, false, true)) {
      await();
    }
  }

  private void await() {
    boolean interrupted = false;
    while (!TAKEN.compareAndSet(this, false, true)) {
      LockSupport.parkNanos(this, POLL_NS);
      // Else the next park would not wait.
      interrupted |= Thread.interrupted();
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  void leave() {
    TAKEN.setRelease(this, false);
  }
}
