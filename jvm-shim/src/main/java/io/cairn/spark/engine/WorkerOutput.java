package io.cairn.spark.engine;

import io.cairn.spark.protocol.StartAnswer;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Both outputs of a worker's process: the log lines, and among them the answer to its start.
 *
 * <p>Anything may print there before the worker does, and beside it: a wrapper that activates an
 * environment, a {@code sitecustomize}, a process that these left behind. Two threads read until
 * both outputs end, so that no pipe fills up and blocks the worker. Thread-safe.
 */
final class WorkerOutput {
  private static final Logger LOG = LoggerFactory.getLogger("io.cairn.engine");
  private static final int LAST_LINES = 20;
  private static final int LAST_CHARS = 4000;

  /** A longer line is logged in parts. The answer is shorter. */
  private static final int LINE_BYTES = 64 * 1024;

  /** How long the outputs of a process that has ended may take. */
  private static final int REST_MS = 2000;

  private final String name;
  private final Process process;
  private final ArrayDeque<String> lastLines = new ArrayDeque<>();
  private final List<Lines> outputs = new ArrayList<>();

  /** The JSON of the answer; null: standard output ended without one. */
  private final CompletableFuture<String> answer = new CompletableFuture<>();

  WorkerOutput(String name, Process process) {
    this.name = name;
    this.process = process;
    Lines output = new Lines(process.getInputStream());
    Lines errors = new Lines(process.getErrorStream());
    outputs.addAll(List.of(output, errors));
    output.thread = daemon("output", output, () -> answer.complete(null));
    errors.thread = daemon("log", errors, () -> {});
  }

  private Thread daemon(String role, Lines lines, Runnable atEnd) {
    Thread thread =
        DaemonThreads.of(
            "cairn-" + name + "-" + role,
            () -> {
              lines.pump();
              atEnd.run();
            });
    DaemonThreads.start(thread);
    return thread;
  }

  /**
   * Waits for the answer to the start.
   *
   * @return its JSON; null: the process has ended, or closed its output, without one
   * @throws TimeoutException if there is none in time
   */
  String awaitAnswer(int timeoutMs) throws TimeoutException {
    try {
      // Not only for the end of the output: another process may keep that open.
      CompletableFuture.anyOf(answer, process.onExit()).get(timeoutMs, TimeUnit.MILLISECONDS);
      if (process.isAlive()) {
        return answer.getNow(null);
      }
      return answer.completeOnTimeout(null, REST_MS, TimeUnit.MILLISECONDS).get();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return null;
    } catch (ExecutionException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Waits for the last output of a process that seems to be ending; returns how it ended. */
  String awaitEnd() {
    try {
      if (!process.waitFor(REST_MS, TimeUnit.MILLISECONDS)) {
        return "closed its standard output at its start, but goes on";
      }
      for (Lines lines : outputs) {
        lines.thread.join(REST_MS);
      }
      return "ended at its start with exit code " + process.exitValue();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return "was interrupted at its start";
    }
  }

  /** The last lines, for an error; empty if there is none. */
  String last() {
    StringBuilder text = new StringBuilder();
    synchronized (lastLines) {
      lastLines.forEach(line -> text.append(" | ").append(line));
    }
    // A question waits at the end of a line that has no end yet.
    outputs.forEach(
        lines -> {
          String begun = lines.begun();
          text.append(begun.isEmpty() ? "" : " | " + begun);
        });
    int from = Math.max(3, text.length() - LAST_CHARS);
    return text.isEmpty() ? "" : "; its last output: " + text.substring(from);
  }

  private void note(String line) {
    LOG.info("[{}] {}", name, line);
    synchronized (lastLines) {
      lastLines.addLast(line);
      if (lastLines.size() > LAST_LINES) {
        lastLines.removeFirst();
      }
    }
  }

  /** One of the two outputs. */
  private final class Lines {
    private final InputStream stream;
    private final ByteArrayOutputStream line = new ByteArrayOutputStream();
    private Thread thread;

    Lines(InputStream stream) {
      this.stream = stream;
    }

    void pump() {
      byte[] buffer = new byte[8192];
      try {
        for (int size = stream.read(buffer); size >= 0; size = stream.read(buffer)) {
          add(buffer, size);
        }
      } catch (IOException e) {
        LOG.debug("[{}] the end of its output: {}", name, e.getMessage());
      }
      end();
    }

    private void add(byte[] data, int size) {
      for (int at = 0; at < size; at++) {
        if (data[at] == '\n' || line.size() == LINE_BYTES) {
          end();
        }
        if (data[at] != '\n') {
          synchronized (line) {
            line.write(data[at]);
          }
        }
      }
    }

    private void end() {
      String text = begun();
      synchronized (line) {
        line.reset();
      }
      String json = StartAnswer.jsonOf(text);
      if (json != null) {
        answer.complete(json);
      } else if (!text.isEmpty()) {
        note(text);
      }
    }

    String begun() {
      synchronized (line) {
        return line.toString(StandardCharsets.UTF_8).stripTrailing();
      }
    }
  }
}
