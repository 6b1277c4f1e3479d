package io.cairn.spark;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/**
 * One at a time of a session's row calls and its end, whichever threads they are on: PySpark's
 * transformWithState reads rows on a thread of its own, and the end of the task does not wait for
 * it.
 *
 * <p>Made for callers that practically never meet. The thread that opened the session, which is the
 * task's and ends the session too, enters for a row without an atomic operation: that would cost a
 * quarter of a put. Any other thread takes the gate by a compare-and-set, which excludes it from
 * all others and from the session's end; from the opener's row calls but for the nanoseconds in
 * which both enter. (Spark never has both threads read or write at once: one waits for the other.)
 * Not reentrant. Whoever leaves publishes what it did to whoever enters next.
 */
final class SessionLock {
  private static final long POLL_NS = TimeUnit.MICROSECONDS.toNanos(100);
  private static final VarHandle TAKEN = handle("taken");
  private static final VarHandle HAS_OPENER = handle("hasOpener");

  private final Thread opener = Thread.currentThread();

  @SuppressWarnings("unused") // by its handle
  private boolean taken;

  /** The opener is inside, or about to find that another thread is. */
  @SuppressWarnings("unused") // by its handle
  private boolean hasOpener;

  private static VarHandle handle(String field) {
    try {
      return MethodHandles.lookup().findVarHandle(SessionLock.class, field, boolean.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** Waits, uninterrupted, until nobody is inside, and enters for a row. */
  void enter() {
    if (Thread.currentThread() != opener) {
      enterFromElsewhere();
      return;
    }
    HAS_OPENER.setOpaque(this, true);
    if ((boolean) TAKEN.getAcquire(this)) {
      enterAfterOthers();
    }
  }

  /** The same for the session's end, which meets no row call even by the nanosecond. */
  void enterToEnd() {
    if (Thread.currentThread() != opener) {
      enterFromElsewhere();
      return;
    }
    HAS_OPENER.setVolatile(this, true);
    VarHandle.fullFence();
    if ((boolean) TAKEN.getVolatile(this)) {
      enterAfterOthers();
    }
  }

  private void enterFromElsewhere() {
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
      // Else the next park would not wait.
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
