package io.cairn.bench;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;

/** Resident memory of this JVM and of its engine workers, from {@code /proc}. */
final class Processes {
  private static final String WORKER_MARK = "cairn.engine";
  private static final long BYTES_PER_KB = 1024;

  private Processes() {}

  static long ownRssBytes() {
    return rssBytes(ProcessHandle.current().pid());
  }

  static long workerRssBytes() {
    return workers().values().stream().mapToLong(Long::longValue).sum();
  }

  /** Resident bytes of each engine worker, by process id; empty for providers without workers. */
  static Map<Long, Long> workers() {
    Map<Long, Long> rss = new TreeMap<>();
    ProcessHandle.current()
        .descendants()
        .forEach(
            process -> {
              if (commandLine(process.pid()).contains(WORKER_MARK)) {
                rss.put(process.pid(), rssBytes(process.pid()));
              }
            });
    return rss;
  }

  private static String commandLine(long pid) {
    return read(pid, "cmdline").replace('\0', ' ');
  }

  private static long rssBytes(long pid) {
    return read(pid, "status")
        .lines()
        .filter(line -> line.startsWith("VmRSS:"))
        .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")) * BYTES_PER_KB)
        .findFirst()
        .orElse(0);
  }

  /** The file's text, empty once the process has ended. */
  private static String read(long pid, String name) {
    try {
      return Files.readString(
          Path.of("/proc", Long.toString(pid), name), StandardCharsets.ISO_8859_1);
    } catch (IOException gone) {
      return "";
    }
  }
}
