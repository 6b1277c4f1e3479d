package io.cairn.spark.engine;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** A JVM with the class path and the options of the tests, and an option of its own. */
public final class ChildJvm {
  private ChildJvm() {}

  /** Starts the main method of a class; its errors appear among those of the tests. */
  public static Process start(String option, Class<?> program, String argument) throws IOException {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    ManagementFactory.getRuntimeMXBean().getInputArguments().stream()
        .filter(text -> text.startsWith("--add-opens") || text.startsWith("-Dcairn."))
        .forEach(command::add);
    command.addAll(
        List.of(option, "-cp", System.getProperty("java.class.path"), program.getName(), argument));
    return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
  }
}
