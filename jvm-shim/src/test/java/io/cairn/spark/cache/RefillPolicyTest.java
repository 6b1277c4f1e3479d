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

  private boolean isDue(long rows, long assumedBytesPerRow) {
    policy.expect(rows, assumedBytesPerRow);
    return policy.isDue();
  }

  private int sessionsUntilDue() {
    int sessions = 0;
    while (!isDue(10, 100)) {
      policy.noteSession();
      sessions++;
      assertTrue(sessions < 10_000);
    }
    return sessions;
  }

  @Test
  void aStoreThatLosesItsFirstCompletenessIsRefilledAtOnce() {
    note(true);
    assertFalse(isDue(10, 100), "it is complete");
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
    assertTrue(isDue(9_000, 100));
    assertFalse(isDue(10_000, 100), "an eighth stays free");
    policy.noteSize(50);
    assertTrue(isDue(18_000, 100));
    policy.noteSize(0);
    assertFalse(isDue(19_000, 10), "the last known size counts");
    assertTrue(account.tryReserve(500_000));
    assertTrue(isDue(18_000, 100), "cached rows need no more memory");
  }

  /** A session that reads little must not wait for the whole state. */
  @Test
  void aRefillBeginsWhenRequestsHaveCostAPartOfIt() {
    policy.expect(RefillPolicy.FEW_ROWS + 80_000, 100);
    assertFalse(policy.isWorthwhile());
    policy.notePaid(9_999);
    assertFalse(policy.isWorthwhile());
    policy.notePaid(1);
    assertTrue(policy.isWorthwhile());
  }

  @Test
  void fewRowsAreReadAtOnce() {
    policy.expect(RefillPolicy.FEW_ROWS, 100);
    assertTrue(policy.isWorthwhile());
  }

  /** Else a refill that stopped shortly before its end would be paid for again. */
  @Test
  void whatAnUnfinishedRefillHasReadIsNotPaidForAgain() {
    policy.expect(RefillPolicy.FEW_ROWS + 80_000, 100);
    policy.noteRefilled(79_999);
    assertFalse(policy.isWorthwhile());
    policy.noteRefilled(1);
    assertTrue(policy.isWorthwhile());
    lost++;
    note(false);
    assertFalse(policy.isWorthwhile(), "the refill was lost");
  }

  /** What was paid before says nothing about the sessions of another version. */
  @Test
  void aLoadForgetsWhatWasPaid() {
    policy.notePaid(1_000_000);
    policy.noteReset();
    policy.expect(RefillPolicy.FEW_ROWS + 1, 100);
    assertFalse(policy.isWorthwhile());
  }

  /** What was paid for requests may be spent, once. */
  @Test
  void aRefillUsesUpWhatWasPaid() {
    policy.notePaid(1_000);
    policy.notePaid(500);
    assertPaid(1_500);
    policy.noteRefilled(400);
    lost++;
    note(false);
    assertPaid(1_100);
    policy.noteRefilled(4_000);
    lost++;
    note(false);
    assertPaid(0);
    policy.notePaid(10);
    note(true);
    assertPaid(0);
  }

  /** Asserts for how many rows a refill is worthwhile: what was paid for requests decides. */
  private void assertPaid(long rows) {
    long enough = RefillPolicy.FEW_ROWS + RefillPolicy.PAID_DIVISOR * rows;
    policy.expect(enough, 100);
    assertTrue(policy.isWorthwhile());
    policy.expect(enough + 1, 100);
    assertFalse(policy.isWorthwhile());
  }
}
