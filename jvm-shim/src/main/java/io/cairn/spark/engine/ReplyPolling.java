package io.cairn.spark.engine;

import java.util.concurrent.atomic.AtomicInteger;

/**
 * Whether the thread that waits for a reply polls for it or sleeps.
 *
 * <p>To sleep and to be woken takes some 10 us, as long as the worker needs for a short reply, and
 * several times that on a virtual machine whose core was idle. But a thread that polls takes its
 * core from a worker or another task that needs it. One per channel; used by one thread at a time.
 */
final class ReplyPolling {
  /** A reply within this time came soon, also if the worker slept and had to be woken. */
  private static final long SOON_NS = 100_000;

  /** After so many replies in a row that came soon, the thread polls for the next. */
  private static final int SOON_REPLIES = 8;

  /** The sessions of this JVM that have a channel: each needs a core, and its worker another. */
  private static final AtomicInteger SESSIONS = new AtomicInteger();

  private final AtomicInteger sessions;
  private final int cores;
  private int soonReplies;

  ReplyPolling() {
    this(SESSIONS, Runtime.getRuntime().availableProcessors());
  }

  ReplyPolling(AtomicInteger sessions, int cores) {
    this.sessions = sessions;
    this.cores = cores;
  }

  /** Notes that a session has got a channel. */
  static void sessionBegins() {
    SESSIONS.incrementAndGet();
  }

  /** Notes that a session has returned its channel. */
  static void sessionEnds() {
    SESSIONS.decrementAndGet();
  }

  /** Returns for how long to poll before the thread sleeps; 0: not at all. */
  long pollNs() {
    return soonReplies >= SOON_REPLIES && 2 * sessions.get() <= cores ? SOON_NS : 0;
  }

  /** Notes how long the thread has waited for a reply. */
  void noteWait(long waitedNs) {
    soonReplies = waitedNs < SOON_NS ? Math.min(soonReplies + 1, SOON_REPLIES) : 0;
  }
}
