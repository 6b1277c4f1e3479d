package io.cairn.spark.engine;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;

/** A JVM with the class path of the tests and an option of its own. */
final class ChildJvm {
  private ChildJvm() {}

  /** Starts the main method of a class; its errors appear among those of the tests. */
  static Process start(String option, Class<?> program, String argument) throws IOException {
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    String classPath = System.getProperty("java.class.path");
    return new ProcessBuilder(List.of(java, option, "-cp", classPath, program.getName(), argument))
        .redirectError(ProcessBuilder.Redirect.INHERIT)
        .start();
  }
}
