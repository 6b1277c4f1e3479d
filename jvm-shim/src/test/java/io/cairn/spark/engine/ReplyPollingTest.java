package io.cairn.spark.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** A thread that polls while its core is needed slows down what it waits for. */
class ReplyPollingTest {
  private final AtomicInteger sessions = new AtomicInteger(2);

  /** With four cores. */
  private ReplyPolling afterSoonReplies(int count) {
    ReplyPolling polling = new ReplyPolling(sessions, 4);
    for (int reply = 0; reply < count; reply++) {
      polling.noteWait(20_000);
    }
    return polling;
  }

  @Test
  void onlySomeRepliesInARowThatCameSoonMakeTheThreadPoll() {
    assertEquals(0, afterSoonReplies(0).pollNs());
    assertEquals(0, afterSoonReplies(7).pollNs());
    ReplyPolling polling = afterSoonReplies(100);
    assertTrue(polling.pollNs() > 0);

    polling.noteWait(120_000);

    assertEquals(0, polling.pollNs());
    polling.noteWait(20_000);
    assertEquals(0, polling.pollNs());
  }

  @Test
  void noThreadPollsIfSessionsAndWorkersNeedAllCores() {
    ReplyPolling polling = afterSoonReplies(8);

    sessions.set(3);

    assertEquals(0, polling.pollNs());
    sessions.set(2);
    assertTrue(polling.pollNs() > 0);
  }
}
