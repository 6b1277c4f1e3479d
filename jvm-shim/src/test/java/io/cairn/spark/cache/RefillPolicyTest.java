package io.cairn.spark.cache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.cache.memory.MemoryPool;
import org.junit.jupiter.api.Test;

class RefillPolicyTest {
  private final MemoryAccount account = new MemoryAccount(new MemoryPool(1 << 20));
  private final RefillPolicy policy = new RefillPolicy(account);
  private long refills;
  private long lost;

  private void note(boolean isComplete) {
    policy.note(isComplete, refills, lost);
  }

  private int sessionsUntilDue() {
    int sessions = 0;
    while (!policy.isDue(10, 100)) {
      policy.noteSession();
      sessions++;
      assertTrue(sessions < 10_000);
    }
    return sessions;
  }

  @Test
  void aStoreThatLosesItsFirstCompletenessIsRefilledAtOnce() {
    note(true);
    assertFalse(policy.isDue(10, 100), "it is complete");
    note(false);
    assertEquals(0, sessionsUntilDue());
  }

  /** A store whose every batch needs the memory would be read again in every batch. */
  @Test
  void aRefillInVainIsRepeatedLaterAndLater() {
    int before = 0;
    for (int i = 0; i < 12; i++) {
      refills++;
      note(true);
      note(false);
      int wait = sessionsUntilDue();
      assertTrue(wait >= before, wait + " after " + before);
      before = wait;
    }
    assertEquals(256, before);
  }

  @Test
  void aRefillThatLastedEndsTheWaiting() {
    for (int i = 0; i < 5; i++) {
      refills++;
      note(true);
      note(false);
      sessionsUntilDue();
    }
    refills++;
    note(true);
    for (int i = 0; i < 5; i++) {
      policy.noteSession();
    }
    note(false);
    assertEquals(0, sessionsUntilDue());

    refills++;
    note(true);
    note(false);
    assertEquals(4, sessionsUntilDue());
  }

  @Test
  void aRefillLostHalfWayWasInVain() {
    lost++;
    note(false);
    assertEquals(4, sessionsUntilDue());
    note(false);
    assertEquals(0, sessionsUntilDue());
  }

  @Test
  void aStateThatLeavesNoMemoryForWritesIsNotRefilled() {
    note(false);
    assertTrue(policy.isDue(9_000, 100));
    assertFalse(policy.isDue(10_000, 100), "an eighth stays free");
    policy.noteSize(50);
    assertTrue(policy.isDue(18_000, 100));
    policy.noteSize(0);
    assertFalse(policy.isDue(19_000, 10), "the last known size counts");
    assertTrue(account.tryReserve(500_000));
    assertTrue(policy.isDue(18_000, 100), "cached rows need no more memory");
  }

  /** What was paid for requests may be spent, once. */
  @Test
  void theStartOfASessionReadsAsManyRowsAsWerePaidFor() {
    policy.notePaid(1_000);
    policy.notePaid(500);
    assertEquals(RefillPolicy.START_ROWS + 1_500, policy.startRows());
    assertEquals(1_500, policy.gain());
    policy.noteRefilled(400);
    assertEquals(1_100, policy.gain());
    policy.noteRefilled(4_000);
    assertEquals(RefillPolicy.START_ROWS, policy.startRows());
    policy.notePaid(10);
    note(true);
    assertEquals(0, policy.gain());
  }
}
