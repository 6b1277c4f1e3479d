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

  /** Has the {@code PYTHONPATH} of this JVM. */
  private static final String LATE_PATH = "CAIRN_PYTHONPATH";

  /**
   * In a syntax that every Python reads. Python has the working folder, as an empty entry, and
   * {@code PYTHONPATH} if a wrapper has set it, before the standard library: modules that are
   * loaded already need no search, all others are imported after the change.
   */
  private static final String RUN_MODULE =
      """
      import os, sys

      def entries(name):
          value = os.environ.get(name)
          return value.split(os.pathsep) if value else []

      try:
          here = os.getcwd()
      except OSError:
          here = ''  # the folder is gone

      def place(path):
          return os.path.normpath(os.path.join(here, path))

      early = set(map(place, entries('PYTHONPATH')))
      kept = [path for path in sys.path if path and place(path) not in early]
      late = entries('PYTHONPATH') + entries('CAIRN_PYTHONPATH')
      sys.path[:] = kept + [path for path in late if path]
      sys.version_info < (3, 11) and sys.exit(
          'TOO_OLD' + '.'.join(map(str, sys.version_info[:3]))
      )
      import runpy

      runpy.run_module(sys.argv[1], run_name='__main__', alter_sys=True)
      """;

  /** What an older Python prints, before its number. */
  static final String TOO_OLD = "Cairn needs Python 3.11 or later, but this is ";

  private WorkerCommand() {}

  /** Makes a builder, whose environment is that of this JVM, start a worker. */
  static ProcessBuilder of(String python, ProcessBuilder builder) {
    Map<String, String> environment = builder.environment();
    String path = environment.remove(PYTHON_PATH);
    // glibc's arenas, one per thread, would keep memory that no bound counts.
    environment.putIfAbsent("MALLOC_ARENA_MAX", "2");
    environment.put(LATE_PATH, path == null ? "" : path);
    return builder.command(
        python, "-u", "-c", asOneWord(RUN_MODULE.replace("TOO_OLD", TOO_OLD)), MODULE);
  }

  /**
   * Returns code as an argument without spaces and patterns: a wrapper that passes its arguments on
   * as {@code $*}, without quotes, lets the shell split and replace them.
   */
  private static String asOneWord(String code) {
    StringBuilder word = new StringBuilder("exec('");
    for (char letter : code.toCharArray()) {
      boolean isPlain = letter < 128 && Character.isLetterOrDigit(letter);
      word.append(isPlain ? String.valueOf(letter) : "\\x%02x".formatted((int) letter));
    }
    return word.append("')").toString();
  }
}
