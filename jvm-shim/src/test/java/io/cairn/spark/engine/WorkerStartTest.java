package io.cairn.spark.engine;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.PYTHON;
import static io.cairn.spark.StoreFixture.commit;
import static io.cairn.spark.StoreFixture.read;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.CairnStateStoreProvider;
import io.cairn.spark.LogOf;
import io.cairn.spark.StoreFixture;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.settings.StoreSettings;
import io.cairn.spark.settings.WorkerSettings;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.logging.log4j.Level;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;

/**
 * The place where a job runs, and what its Python prints, do not decide whether a worker starts.
 */
class WorkerStartTest {
  /** Modules that the worker, its libraries, or Python itself need. */
  private static final List<String> NAMES =
      List.of(
          "secrets",
          "email",
          "csv",
          "resource",
          "types",
          "queue",
          "enum",
          "logging",
          "json",
          "socket",
          "random",
          "numpy",
          "runpy",
          "sitecustomize");

  private StoreFixture fixture;

  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture().withOwnWorker();
  }

  @AfterEach
  void close() throws IOException {
    fixture.close();
  }

  /** Makes the worker's Python a script that runs these lines of shell. */
  private void runBy(String lines) throws IOException {
    fixture.runWorkersBy("#!/bin/sh\n" + lines + "\n");
  }

  /** Makes it a script that runs these lines and then Python. */
  private void runPythonAfter(String lines) throws IOException {
    runBy(lines + "\nexec " + PYTHON + " \"$@\"");
  }

  private void assertStarts() {
    CairnStateStoreProvider provider = fixture.provider();

    Option<String> id = commit(provider, 0, NO_ID, 1);

    assertEquals(List.of("v1@1"), read(provider, 1, id, 1));
  }

  /** Returns the error of a worker that does not start. */
  private String failure() {
    CairnStateStoreProvider provider = fixture.provider();
    Throwable error =
        assertThrows(Throwable.class, () -> provider.getStore(0, NO_ID, false, false));
    return StoreFixture.chain(error);
  }

  /** Returns the error of a script that never starts a worker, with a limit of two seconds. */
  private String failureOf(String lines) throws IOException {
    runBy(lines);
    WorkerSettings worker = StoreSettings.of(fixture.conf()).worker;
    int requestMs = worker.timeouts().requestMs();
    WorkerSettings hasty =
        new WorkerSettings(
            worker.python(),
            worker.localDir(),
            worker.keepsCache(),
            worker.workers(),
            worker.resources(),
            new WorkerSettings.Timeouts(2000, requestMs));
    return StoreFixture.chain(
        assertThrows(CairnException.class, () -> WorkerProcess.start("worker-0", hasty)));
  }

  /** Returns a folder with a module of each of these names that cannot be imported. */
  private Path foreignModules() throws IOException {
    Path folder = Files.createDirectory(fixture.folder.resolve("job"));
    for (String name : NAMES) {
      Files.writeString(folder.resolve(name + ".py"), "raise ImportError('of the job')\n");
    }
    return folder;
  }

  /** People name their scripts after what they contain. */
  @Test
  void aFileBesideTheJobIsNotImported() throws IOException {
    runPythonAfter("cd '" + foreignModules() + "'");

    assertStarts();
  }

  /** Spark's own workers start so, because no argument of theirs has a space. */
  @Test
  void aWrapperMaySplitItsArguments() throws IOException {
    runBy("exec " + PYTHON + " $*");

    assertStarts();
  }

  @Test
  void theWorkingFolderMayBeGone() throws IOException {
    Path gone = fixture.folder.resolve("gone");
    runPythonAfter("mkdir '%1$s' && cd '%1$s' && rmdir '%1$s'".formatted(gone));

    assertStarts();
  }

  /** An entry without a name, as of {@code PYTHONPATH=$PYTHONPATH:/lib}, is the working folder. */
  @Test
  void anEmptyEntryOfThePythonPathIsNotTheWorkingFolder() throws IOException {
    runPythonAfter("cd '" + foreignModules() + "'\nexport PYTHONPATH=:/lib");

    assertStarts();
  }

  @Test
  void aPythonPathThatTheWrapperSetsComesAfterTheOwnPackages() throws IOException {
    runBy("PYTHONPATH='" + foreignModules() + "' exec " + PYTHON + " -s \"$@\"");

    assertStarts();
  }

  /** Python imports modules before it runs a line of the worker's: its start must not see them. */
  @Test
  void aPythonPathOfTheExecutorComesAfterTheOwnPackages() throws Exception {
    ProcessBuilder builder = new ProcessBuilder().redirectErrorStream(true);
    builder.environment().put("PYTHONPATH", foreignModules().toString());
    Process process = WorkerCommand.of(PYTHON, builder).start();
    process.getOutputStream().close(); // A worker without a start line ends, after its imports.

    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);

    assertEquals(0, process.waitFor(), output);
    assertEquals("", output);
  }

  /** {@code --py-files} on YARN, an unpacked environment, a checkout: all come by this path. */
  @Test
  void thePackageMayComeFromThePythonPath() throws IOException {
    String site = "import sysconfig; print(sysconfig.get_path(\"purelib\"))";
    String source = "import cairn, os; print(os.path.dirname(os.path.dirname(cairn.__file__)))";
    String path = "\"$(%1$s -c '%2$s'):$(%1$s -c '%3$s')\"".formatted(PYTHON, site, source);
    runBy("PYTHONPATH=" + path + " exec " + PYTHON + " -S \"$@\"");

    assertStarts();
  }

  /** A wrapper that activates an environment, or a sitecustomize, often says so. */
  @Test
  void whatPythonPrintsBeforeItStartsIsLogged() throws IOException {
    runPythonAfter("echo activating environment\necho '{\"port\": 1}'\nprintf 'not a whole line'");

    try (LogOf log = new LogOf("io.cairn.engine", Level.INFO)) {
      assertStarts();

      assertTrue(log.lines.contains("[worker-0] activating environment"), log.lines.toString());
      assertTrue(log.lines.contains("[worker-0] {\"port\": 1}"), log.lines.toString());
      assertTrue(log.lines.contains("[worker-0] not a whole line"), log.lines.toString());
    }
  }

  @Test
  void aProcessThatPrintsBesideTheWorkerIsLogged() throws IOException {
    runPythonAfter("(while kill -0 $$ 2>/dev/null; do printf .; sleep 0.01; done) &");

    assertStarts();
  }

  /** A line without an end must not take the memory of the executor. */
  @Test
  void aHugeLineIsLoggedInParts() throws IOException {
    runPythonAfter("head -c 300000 /dev/zero | tr '\\0' x");

    try (LogOf log = new LogOf("io.cairn.engine", Level.INFO)) {
      assertStarts();

      assertTrue(log.lines.stream().allMatch(line -> line.length() < 100_000));
    }
  }

  @Test
  void aWrapperThatOnlyPrintsIsEndedAtTheTimeLimit() throws IOException {
    String error = failureOf("while :; do echo still solving; sleep 0.01; done");

    assertTrue(error.contains("CAIRN_WORKER_START"), error);
    assertTrue(error.contains("did not start within 2000 ms"), error);
    assertTrue(error.contains("still solving"), error);
    assertFalse(error.length() > 20_000, error);
  }

  /** The question waits on the line that has no end yet. */
  @Test
  void aWrapperThatAsksIsShownInTheError() throws IOException {
    String error = failureOf("printf 'Proceed ([y]/n)? '\nexec sleep 60");

    assertTrue(error.contains("did not start within 2000 ms"), error);
    assertTrue(error.contains("Proceed ([y]/n)?"), error);
  }

  @Test
  void aClosedOutputIsNamed() throws IOException {
    runBy("exec >&-\nexec sleep 60");
    long startedNs = System.nanoTime();

    String error = failure();

    assertTrue(error.contains("closed its standard output"), error);
    assertTrue(System.nanoTime() - startedNs < TimeUnit.SECONDS.toNanos(30), "it waited");
  }

  /** A process that the wrapper left behind keeps the pipes open. */
  @Test
  void aWrapperThatEndsIsNotWaitedFor() throws IOException {
    runBy("sleep 45 &\necho no such environment >&2\nexit 3");
    long startedNs = System.nanoTime();

    String error = failure();

    assertTrue(error.contains("ended at its start with exit code 3"), error);
    assertTrue(error.contains("no such environment"), error);
    assertTrue(System.nanoTime() - startedNs < TimeUnit.SECONDS.toNanos(30), "it waited");
  }

  /** A wrapper's own words about a module are not the reason. */
  @Test
  void onlyPythonsOwnErrorMeansAMissingPackage() throws IOException {
    runBy("echo \"hint: No module named 'conda', using the system's\" >&2\nexit 3");

    String error = failure();

    assertTrue(error.contains("CAIRN_WORKER_START"), error);
  }

  @Test
  void anOldPythonIsNamed() throws IOException {
    runBy(
        "exec "
            + PYTHON
            + " -c 'import sys; sys.version_info = (3, 9, 2); exec(sys.argv[3])' \"$@\"");

    String error = failure();

    assertTrue(error.contains("CAIRN_PYTHON"), error);
    assertTrue(error.contains("3.9.2") && error.contains("3.11"), error);
  }
}
