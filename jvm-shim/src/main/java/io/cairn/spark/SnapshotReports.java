package io.cairn.spark;

import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The newest uploaded snapshot of a store, and what of it was told to whoever wants to know. Both
 * only grow; a report that failed is made with the next note. Thread-safe: commits and maintenance
 * note side by side.
 */
final class SnapshotReports {
  private static final Logger LOG = LoggerFactory.getLogger(SnapshotReports.class);

  private final LongConsumer report;
  private final AtomicLong newest = new AtomicLong(-1);
  private final AtomicLong reported = new AtomicLong(-1);

  /**
   * @param report may fail: a commit does not
   */
  SnapshotReports(LongConsumer report) {
    this.report = report;
  }

  /** Takes note of a snapshot's version; 0: there is none. */
  void note(long version) {
    if (version <= 0) {
      return;
    }
    newest.accumulateAndGet(version, Math::max);
    long before = reported.getAndAccumulate(version, Math::max);
    if (version <= before) {
      return;
    }
    try {
      report.accept(version);
    } catch (Exception e) {
      // Scala throws what Java does not declare.
      reported.compareAndSet(version, before);
      LOG.debug("snapshot {} was not reported", version, e);
    }
  }

  /** Newest snapshot known, or -1. */
  long newest() {
    return newest.get();
  }
}
