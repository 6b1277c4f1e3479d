package io.cairn.spark;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.commit;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.engine.ChildJvm;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import scala.Option;

/** What a run has begun when its JVM ends: most scheduled jobs end seconds after a commit. */
class EndOfJvmTest {
  /** An upload goes on when the end of the worker waits for it, and not before. */
  private static final String LATE_UPLOADS =
      """
      import threading
      from cairn.storage.local import LocalStore
      from cairn.store.shared.resources import RunningSnapshots
      upload, wait, is_waited_for = LocalStore.upload, RunningSnapshots.wait, threading.Event()
      def late(self, *arguments, **named):
          is_waited_for.wait()
          return upload(self, *arguments, **named)
      def noted(self, wait_s):
          if wait_s > 0:
              is_waited_for.set()
          return wait(self, wait_s)
      LocalStore.upload, RunningSnapshots.wait = late, noted
      """;

  /** A short run: its last commit begins a snapshot. */
  static final class ShortRun {
    public static void main(String[] arguments) throws Exception {
      StoreFixture fixture = new StoreFixture().withOwnWorker();
      fixture.patchEngine(LATE_UPLOADS);
      fixture.settings.put("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1");
      CairnStateStoreProvider provider = fixture.provider();
      Option<String> id = NO_ID;
      for (int version = 0; version < 5; version++) {
        id = commit(provider, version, id, version);
      }
      Files.writeString(
          Path.of(arguments[0]),
          fixture.folder + "\n" + fixture.worker().pid(),
          StandardCharsets.UTF_8);
      System.exit(0);
    }
  }

  /** Without the wait each run begins its upload anew, and no run ever stores a snapshot. */
  @Test
  void aSnapshotThatRunsMayEndBeforeTheJvmDoes(@TempDir Path folder) throws Exception {
    Path notes = folder.resolve("notes");
    Process jvm = ChildJvm.start("-Xmx512m", ShortRun.class, notes.toString());

    assertTrue(jvm.waitFor(2, TimeUnit.MINUTES), "the JVM did not end within two minutes");
    assertEquals(0, jvm.exitValue());
    List<String> lines = Files.readAllLines(notes);
    try (Stream<Path> files = Files.walk(Path.of(lines.get(0), "state"))) {
      List<String> manifests =
          files.map(Path::toString).filter(name -> name.endsWith(".json")).toList();
      assertEquals(1, manifests.size(), manifests.toString());
    }
    boolean isLeft =
        ProcessHandle.of(Long.parseLong(lines.get(1))).map(ProcessHandle::isAlive).orElse(false);
    assertEquals(false, isLeft);
  }
}
