package io.cairn.bench;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.ToLongFunction;
import java.util.stream.LongStream;

/**
 * Memory, CPU and disk writes of this JVM and of its descendants, from {@code /proc}.
 *
 * <p>The kernel adds the CPU and the writes of a process that has ended to those of its parent, so
 * that the sums also have the short-lived processes that Spark starts.
 */
final class Processes {
  private static final String WORKER_MARK = "cairn.engine";
  private static final long BYTES_PER_KB = 1024;
  private static final double TICKS_PER_SECOND = 100; // USER_HZ on all of Linux's architectures

  private static final long IDLE_SAMPLE_MS = 200;
  private static final double IDLE_CPU_SECONDS = 0.02;
  private static final int IDLE_SAMPLES = 2;
  private static final int MOST_IDLE_SAMPLES = 150;

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

  /** CPU seconds, user and system, of all processes since their starts, in steps of 10 ms. */
  static double cpuSeconds() {
    return sum(Processes::cpuTicks) / TICKS_PER_SECOND;
  }

  /** CPU seconds of this JVM and of the descendants that have ended. */
  static double ownCpuSeconds() {
    return cpuTicks(ProcessHandle.current().pid()) / TICKS_PER_SECOND;
  }

  /** Bytes that all processes caused to be written to disks since their starts. */
  static long diskWrittenBytes() {
    return sum(pid -> number(read(pid, "io"), "write_bytes:"));
  }

  /**
   * Waits until the processes use no CPU, for at most 30 s: work in the background of one part must
   * not count in the next one.
   */
  static void awaitIdle() {
    int idleSamples = 0;
    double before = cpuSeconds();
    for (int i = 0; i < MOST_IDLE_SAMPLES && idleSamples < IDLE_SAMPLES; i++) {
      try {
        Thread.sleep(IDLE_SAMPLE_MS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return;
      }
      double now = cpuSeconds();
      idleSamples = now - before <= IDLE_CPU_SECONDS ? idleSamples + 1 : 0;
      before = now;
    }
  }

  private static long sum(ToLongFunction<Long> figure) {
    LongStream descendants = ProcessHandle.current().descendants().mapToLong(ProcessHandle::pid);
    return LongStream.concat(LongStream.of(ProcessHandle.current().pid()), descendants)
        .map(figure::applyAsLong)
        .sum();
  }

  /** Ticks of a process and of its children that have ended; 0 if it has ended itself. */
  private static long cpuTicks(long pid) {
    String stat = read(pid, "stat");
    // The name, in parentheses, may contain spaces. Fields 14 to 17: utime stime cutime cstime.
    String[] fields = stat.substring(stat.lastIndexOf(')') + 1).trim().split(" ");
    long ticks = 0;
    for (int field = 14; field <= 17 && field - 3 < fields.length; field++) {
      ticks += Long.parseLong(fields[field - 3]);
    }
    return ticks;
  }

  private static String commandLine(long pid) {
    return read(pid, "cmdline").replace('\0', ' ');
  }

  private static long rssBytes(long pid) {
    return number(read(pid, "status"), "VmRSS:") * BYTES_PER_KB;
  }

  /** The number in the line that starts with {@code name}; 0 if there is none. */
  private static long number(String text, String name) {
    return text.lines()
        .filter(line -> line.startsWith(name))
        .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")))
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
