package io.cairn.spark.session;

import java.util.Arrays;
import java.util.stream.Collectors;

/** Who holds a store's lock, for the error of a thread that waited in vain. */
record LockHolder(Thread thread, long sinceNs) {
  /** Frames of the holder's stack in an error: enough to see which call does not end. */
  private static final int FRAMES = 6;

  static LockHolder ofThisThread() {
    return new LockHolder(Thread.currentThread(), System.nanoTime());
  }

  /**
   * Describes a holder: its thread, whose name has Spark's task, for how long, and what it does.
   *
   * @param holder null: it has just released the lock
   */
  static String text(LockHolder holder) {
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
