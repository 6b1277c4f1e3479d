package io.cairn.spark.session;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.Waits;
import io.cairn.spark.errors.CairnException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** A store is closed once, and never while a session uses it. */
class StoreLockTest {
  private static final int NEVER_MS = 60_000;

  private final AtomicInteger closings = new AtomicInteger();
  private final StoreLock lock = new StoreLock("0/3/default", NEVER_MS, closings::incrementAndGet);

  /** Spark unloads a provider while a task of a cancelled query still writes. */
  @Test
  void aStoreInUseIsClosedWhenItsSessionEnds() {
    lock.acquire();

    lock.close();

    assertEquals(0, closings.get());
    lock.release();
    assertEquals(1, closings.get());
    assertThrows(CairnException.class, lock::acquire);
  }

  /** The next task would wait for the whole timeout, for a store that it cannot use. */
  @Test
  void aThreadThatWaitsLearnsThatTheStoreIsClosed() throws Exception {
    lock.acquire();
    CompletableFuture<Void> waiting = new CompletableFuture<>();
    Thread thread = new Thread(() -> waiting.completeAsync(this::acquire, Runnable::run));
    thread.start();
    Waits.untilIn(thread, "Semaphore", "tryAcquire");

    lock.close();
    lock.release();

    Throwable error =
        waiting.handle((none, failure) -> failure.getCause()).get(10, TimeUnit.SECONDS);
    assertTrue(error.getMessage().contains("closed"), error.getMessage());
    assertTrue(closings.get() > 0);
  }

  private Void acquire() {
    lock.acquire();
    return null;
  }
}
