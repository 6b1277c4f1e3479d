package io.cairn.spark.session;

import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The newest uploaded snapshot of a store, reported once per version. A report that failed is
 * repeated at the next note. Thread-safe: commits and maintenance run side by side.
 */
final class SnapshotReports {
  private static final Logger LOG = LoggerFactory.getLogger(SnapshotReports.class);

  private final LongConsumer report;
  private final AtomicLong newest = new AtomicLong(-1);
  private final AtomicLong reported = new AtomicLong(-1);

  /**
   * @param report its failure does not fail the caller
   */
  SnapshotReports(LongConsumer report) {
    this.report = report;
  }

  /** Notes the version of a snapshot; 0 means none. */
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
      // Scala throws checked exceptions that Java does not see.
      reported.compareAndSet(version, before);
      LOG.debug("snapshot {} was not reported", version, e);
    }
  }

  /** The newest snapshot known, or -1. */
  long newest() {
    return newest.get();
  }
}
