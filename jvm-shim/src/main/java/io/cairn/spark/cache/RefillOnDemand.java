package io.cairn.spark.cache;

import io.cairn.spark.cache.memory.MemoryAccount;
import io.cairn.spark.protocol.RowPage;
import java.util.List;
import java.util.function.BooleanSupplier;

/**
 * Begins the refills of a store: a session allows them, and then its requests to the engine begin
 * one when that is worthwhile, once.
 */
final class RefillOnDemand {
  final RefillPolicy policy;
  private final CachedFamilies families;
  private final PageSource pages;
  private final Refill refill;
  private long count;

  /** Requests of the open session may begin a refill. */
  private boolean isAllowed;

  RefillOnDemand(
      CachedFamilies families, Eviction eviction, MemoryAccount account, PageSource pages) {
    this.families = families;
    this.pages = pages;
    refill = new Refill(families, eviction, account);
    policy = new RefillPolicy(account);
  }

  /** Notes the cost of a reply to a request. */
  void notePaid(RowPage rows) {
    policy.notePaid(RefillPolicy.ROWS_PER_REQUEST + rows.count);
  }

  /** Lets the requests of the open session begin a refill, and begins it now if it is small. */
  void allow() {
    isAllowed = true;
    runIfWorthwhile();
  }

  /** Lets no later request of the open session begin a refill. */
  void forbid() {
    isAllowed = false;
  }

  /** Refills all families if the requests so far are worth it. True: the cache has more rows. */
  boolean runIfWorthwhile() {
    if (!isAllowed || !policy.isWorthwhile()) {
      return false;
    }
    isAllowed = false; // once per session
    return tryRun(List.copyOf(families.all()));
  }

  /** Refills a family before a scan of all its rows, which costs as much. */
  void runForScan(CachedFamily family) {
    if (isAllowed && !family.isComplete) {
      isAllowed = tryRun(List.of(family)) && family.isComplete;
    }
  }

  /** Refills, unless there is no memory for all rows, or the session has spilled. */
  private boolean tryRun(List<CachedFamily> some) {
    boolean isPossible =
        policy.isDue() && families.all().stream().noneMatch(family -> family.hasSpilledWrites);
    if (isPossible) {
      // A task that was cancelled must not wait for all rows.
      run(some, () -> Thread.currentThread().isInterrupted());
    }
    return isPossible;
  }

  /**
   * Reads the rows that the cache lacks of some families. REQUIRES: the session has spilled
   * nothing.
   *
   * @param stops see {@link Refill#run}
   */
  void run(List<CachedFamily> some, BooleanSupplier stops) {
    boolean wasComplete = families.areComplete();
    policy.noteRefilled(refill.run(pages, some, stops));
    count += !wasComplete && families.areComplete() && !policy.isFirst() ? 1 : 0;
  }

  /** Refills that made all families complete. */
  long count() {
    return count;
  }
}
