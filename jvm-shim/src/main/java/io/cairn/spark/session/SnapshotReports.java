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

  /**
   * Notes the version of the snapshot that a load has found; 0 means none. It is reported with the
   * next {@link #note}: state readers load too, but Spark's coordinator never forgets an instance
   * that only reported.
   */
  void noteLoaded(long version) {
    if (version > 0) {
      newest.accumulateAndGet(version, Math::max);
    }
  }

  /** Notes the version of a snapshot, 0 means none, and reports the newest one. */
  void note(long version) {
    noteLoaded(version);
    long known = newest.get();
    long before = reported.getAndAccumulate(known, Math::max);
    if (known <= before) {
      return;
    }
    try {
      report.accept(known);
    } catch (Throwable e) {
      // Also an Error: the version of the commit that notes it is durable. Scala code may throw
      // checked exceptions without declaring them.
      reported.compareAndSet(known, before);
      LOG.debug("snapshot {} was not reported", known, e);
    }
  }

  /** The newest snapshot known, or -1. */
  long newest() {
    return newest.get();
  }
}
