package io.cairn.spark.session;

import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The newest uploaded snapshot of a store, reported once per version. A failed report is repeated
 * at the next note. Thread-safe: commits and maintenance run concurrently.
 */
final class SnapshotReports {
  private static final Logger LOG = LoggerFactory.getLogger(SnapshotReports.class);

  private final LongConsumer report;
  private final AtomicLong newest = new AtomicLong(-1);
  private final AtomicLong reported = new AtomicLong(-1);

  /**
   * @param report reports a version; if it fails, the caller does not
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
      // Scala code may throw checked exceptions without declaring them.
      reported.compareAndSet(version, before);
      LOG.debug("snapshot {} was not reported", version, e);
    }
  }

  /** The newest snapshot known, or -1. */
  long newest() {
    return newest.get();
  }
}
