package io.cairn.spark.session;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.Waits;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The nanoseconds in which two threads enter at once are too short for a test. */
class SessionLockTest {
  private final AtomicBoolean hasLeft = new AtomicBoolean();

  /** Leaves once another thread waits in the lock, or has not waited and ended. */
  private void leaveAfter(SessionLock lock, Thread waiting) throws InterruptedException {
    Waits.untilIn(waiting, "SessionLock", "park");
    hasLeft.set(true);
    lock.leave();
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void theOpenerWaitsForAnotherThread(boolean areCallsConcurrent) throws InterruptedException {
    SessionLock lock = new SessionLock(areCallsConcurrent);
    CountDownLatch isInside = new CountDownLatch(1);
    Thread opener = Thread.currentThread();
    Thread other =
        new Thread(
            () -> {
              lock.enter();
              isInside.countDown();
              try {
                leaveAfter(lock, opener);
              } catch (InterruptedException e) {
                throw new IllegalStateException(e);
              }
            });
    other.start();
    isInside.await();

    lock.enter();

    assertTrue(hasLeft.get());
    lock.leave();
    other.join();
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void anotherThreadWaitsForTheOpener(boolean areCallsConcurrent) throws InterruptedException {
    SessionLock lock = new SessionLock(areCallsConcurrent);
    lock.enter();
    AtomicBoolean wasTooEarly = new AtomicBoolean();
    Thread other =
        new Thread(
            () -> {
              lock.enter();
              wasTooEarly.set(!hasLeft.get());
              lock.leave();
            });
    other.start();

    leaveAfter(lock, other);

    other.join(TimeUnit.SECONDS.toMillis(30));
    assertFalse(other.isAlive());
    assertFalse(wasTooEarly.get());
  }
}
