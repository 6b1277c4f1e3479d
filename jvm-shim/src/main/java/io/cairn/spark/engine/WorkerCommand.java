package io.cairn.spark.engine;

import java.util.Map;

/**
 * How a worker's Python starts: no file beside the job takes the place of a module that it needs.
 *
 * <p>Spec: docs/protocol.md, "Start of a worker".
 */
final class WorkerCommand {
  private static final String MODULE = "cairn.engine";
  private static final String PYTHON_PATH = "PYTHONPATH";

  /**
   * One line, because wrappers pass it on, in a syntax that every Python reads. Python has the
   * working folder, and {@code PYTHONPATH} if a wrapper has set it, before the standard library:
   * modules that are loaded already need no search, all others are imported after the change.
   */
  private static final String RUN_MODULE =
      "import os, sys; "
          + "paths = (os.environ.get('PYTHONPATH', '') + os.pathsep + sys.argv[2])"
          + ".split(os.pathsep); "
          + "late = [path for path in paths if path]; "
          + "early = set(map(os.path.abspath, ['.'] + late)); "
          + "sys.path[:] = [path for path in sys.path if os.path.abspath(path) not in early]"
          + " + late; "
          + "sys.version_info < (3, 11) and sys.exit('"
          + WorkerCommand.TOO_OLD
          + "' + '.'.join(map(str, sys.version_info[:3]))); "
          + "import runpy; "
          + "runpy.run_module(sys.argv[1], run_name='__main__', alter_sys=True)";

  /** What an older Python prints, before its number. */
  static final String TOO_OLD = "Cairn needs Python 3.11 or later, but this is ";

  private WorkerCommand() {}

  /** Makes a builder, whose environment is that of this JVM, start a worker. */
  static ProcessBuilder of(String python, ProcessBuilder builder) {
    Map<String, String> environment = builder.environment();
    String path = environment.remove(PYTHON_PATH);
    // glibc's arenas, one per thread, would keep memory that no bound counts.
    environment.putIfAbsent("MALLOC_ARENA_MAX", "2");
    return builder.command(python, "-u", "-c", RUN_MODULE, MODULE, path == null ? "" : path);
  }
}
