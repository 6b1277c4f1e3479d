package io.cairn.spark;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;

/** Waits of tests: for facts, never for a time. */
public final class Waits {
  private static final long LIMIT_S = 30;

  private Waits() {}

  /** Waits until a fact holds; fails after a time that is enough on any machine. */
  public static void until(String what, BooleanSupplier holds) throws InterruptedException {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
    while (!holds.getAsBoolean()) {
      assertTrue(System.nanoTime() < deadline, () -> "waited " + LIMIT_S + " s for " + what);
      Thread.sleep(1);
    }
  }

  /** Waits until a thread is in a method, of a class without its package, or has ended. */
  public static void untilIn(Thread thread, String type, String method)
      throws InterruptedException {
    until(
        thread + " in " + type + "." + method,
        () ->
            thread.getState() == Thread.State.TERMINATED
                || Arrays.stream(thread.getStackTrace()).anyMatch(is(type, method)));
  }

  private static Predicate<StackTraceElement> is(String type, String method) {
    return frame ->
        frame.getClassName().endsWith("." + type) && frame.getMethodName().equals(method);
  }
}
