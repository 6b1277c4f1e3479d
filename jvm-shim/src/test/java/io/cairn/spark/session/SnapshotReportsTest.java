package io.cairn.spark.session;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;

/** Each newer uploaded snapshot is reported once, and again after a failed report. */
class SnapshotReportsTest {
  @Test
  void onlyNewerSnapshotsAreReported() {
    List<Long> reported = new ArrayList<>();
    SnapshotReports reports = new SnapshotReports(reported::add);

    for (long version : new long[] {0, 3, 3, 2, 5}) {
      reports.note(version);
    }

    assertEquals(List.of(3L, 5L), reported);
    assertEquals(5, reports.newest());
  }

  /** Each state reader would leave an entry in the coordinator until the end of the driver. */
  @Test
  void theSnapshotOfALoadIsReportedByTheFirstCommitOnly() {
    List<Long> reported = new ArrayList<>();
    SnapshotReports reports = new SnapshotReports(reported::add);

    reports.noteLoaded(3);
    assertEquals(List.of(), reported);
    assertEquals(3, reports.newest());

    reports.note(0);
    assertEquals(List.of(3L), reported);
  }

  /** A coordinator that was not reachable must receive the report later; no commit may fail. */
  @Test
  void aFailedReportIsRepeatedWithTheNextNote() {
    AtomicBoolean isAway = new AtomicBoolean(true);
    List<Long> reported = new ArrayList<>();
    SnapshotReports reports =
        new SnapshotReports(
            version -> {
              if (isAway.get()) {
                throw new NoClassDefFoundError("no coordinator");
              }
              reported.add(version);
            });
    reports.note(3);
    isAway.set(false);

    reports.note(3);

    assertEquals(List.of(3L), reported);
  }

  /** If two notes are concurrent, the newer one is reported, in either order. */
  @Test
  void aNewerNoteDuringAReportIsReported() {
    List<Long> reported = new ArrayList<>();
    SnapshotReports[] reports = new SnapshotReports[1];
    reports[0] =
        new SnapshotReports(
            version -> {
              reported.add(version);
              if (version == 3) {
                reports[0].note(5);
              }
            });

    reports[0].note(3);
    reports[0].note(4);

    assertEquals(List.of(3L, 5L), reported);
  }
}
