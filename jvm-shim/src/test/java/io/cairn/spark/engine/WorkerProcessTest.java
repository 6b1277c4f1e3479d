package io.cairn.spark.engine;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import org.junit.jupiter.api.Test;

/** A worker that the system does not start names what must change. */
class WorkerProcessTest {
  private static String textOf(String error) {
    IOException refused = new IOException("Cannot run program \"python3\": " + error);
    return WorkerProcess.notStarted("worker-0", "python3", refused).getMessage();
  }

  /** A user with a right setting would look for a fault in it. */
  @Test
  void aSystemThatIsShortOfResourcesIsNoFaultOfTheSetting() {
    for (String error :
        List.of(
            "error=11, Resource temporarily unavailable",
            "error=12, Cannot allocate memory",
            "Exec failed, error: 11 (Resource temporarily unavailable) ")) {
      String text = textOf(error);

      assertTrue(text.contains("[CAIRN_WORKER_START]"), text);
      assertTrue(text.contains(error.strip()), text);
      assertTrue(text.contains("limits of processes or memory"), text);
    }
  }

  /** The limit is the JVM's: the pipes to the worker need some. */
  @Test
  void tooManyOpenFilesAreNamed() {
    String text = textOf("error=24, Too many open files");

    assertTrue(text.contains("[CAIRN_OPEN_FILES]"), text);
    assertTrue(text.contains("ulimit -n"), text);
  }

  @Test
  void aPythonThatCannotRunIsAFaultOfTheSetting() {
    for (String error :
        List.of(
            "error=2, No such file or directory",
            "error=8, Exec format error",
            "error=13, Permission denied",
            "error=20, Not a directory",
            "Exec failed, error: 2 (No such file or directory) ")) {
      String text = textOf(error);

      assertTrue(text.contains("[CAIRN_PYTHON]"), text);
      assertTrue(text.contains("cairn.python"), text);
    }
  }
}
