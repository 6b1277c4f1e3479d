package io.cairn.spark.session;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The nanoseconds in which two threads enter at once are too short for a test. */
class SessionLockTest {
  private static final long A_WHILE_MS = 50;

  private final AtomicBoolean hasLeft = new AtomicBoolean();

  private void leaveLater(SessionLock lock) {
    LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(A_WHILE_MS));
    hasLeft.set(true);
    lock.leave();
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void theOpenerWaitsForAnotherThread(boolean areCallsConcurrent) throws InterruptedException {
    SessionLock lock = new SessionLock(areCallsConcurrent);
    CountDownLatch isInside = new CountDownLatch(1);
    Thread other =
        new Thread(
            () -> {
              lock.enter();
              isInside.countDown();
              leaveLater(lock);
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

    leaveLater(lock);

    other.join(TimeUnit.SECONDS.toMillis(30));
    assertFalse(other.isAlive());
    assertFalse(wasTooEarly.get());
  }
}
