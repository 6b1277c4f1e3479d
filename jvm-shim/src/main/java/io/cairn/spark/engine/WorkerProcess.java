package io.cairn.spark.engine;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.errors.OpenFiles;
import io.cairn.spark.protocol.FrameHeader;
import io.cairn.spark.protocol.Json;
import io.cairn.spark.settings.WorkerSettings;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One worker process, {@code cairn.engine} in Python, with its control channels and data channels.
 *
 * <p>It ends when its standard input ends, so it ends with this JVM. The token and all secrets are
 * sent on that input or over Py4J, never on a command line or in the environment. Thread-safe.
 */
final class WorkerProcess implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger("io.cairn.engine");

  /**
   * How long the end of a store or of this JVM lets a running snapshot go on. A container that is
   * ended gets 30 seconds by default, and Spark needs some of them.
   */
  static final int END_WAIT_MS = 20_000;

  private static final int SOCKET_PATH_BYTES = 100;

  /** The end of Python's own report that a package is not installed. */
  private static final Pattern NO_MODULE =
      Pattern.compile("ModuleNotFoundError: No module named '(\\w+)");

  private static final Pattern TOO_OLD = Pattern.compile(WorkerCommand.TOO_OLD + "\\d");

  /**
   * The number of a failed start in the text of the JDK: {@code error=2,} or {@code error: 2 (}.
   */
  private static final Pattern SYSTEM_ERROR = Pattern.compile("error(?:=|: )(\\d+)[, ]");

  /** No such file, not a program, no permission, not a folder: the setting must be corrected. */
  private static final Set<Integer> NOT_RUNNABLE = Set.of(2, 8, 13, 20);

  private final String name;
  private final Process process;
  private final OutputStream input;
  private final WorkerOutput output;
  private final Path socket;
  private final AtomicLong startMs = new AtomicLong();
  private final ControlChannel control;
  private final ChannelPool channels;
  private final StorageConnections storage;
  private final WorkerSettings.Timeouts timeouts;
  private volatile boolean isGivenUp;

  private WorkerProcess(
      String name, Process process, long startedNs, WorkerSettings settings, String token) {
    this.name = name;
    this.process = process;
    this.input = process.getOutputStream();
    output = new WorkerOutput(name, process);
    JsonNode ready = handshake(settings, token);
    int port = ready.path("port").asInt();
    timeouts = settings.timeouts();
    control =
        new ControlChannel(
            name,
            port,
            token,
            new ControlChannel.Limits(timeouts.requestMs(), timeouts.silenceMs()),
            this::giveUp);
    socket = Path.of(ready.path("socket").asText());
    channels = new ChannelPool(socket, token, timeouts.requestMs());
    storage = new StorageConnections(name, socket, token, timeouts.requestMs());
    startMs.set(TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - startedNs));
    LOG.info(
        "worker {} is process {}, ready after {} ms: {}",
        name,
        process.pid(),
        startMs,
        ready.path("versions"));
  }

  /**
   * Starts a worker and waits, within the time limit, until it answers. Not on the thread of a
   * task, which may be interrupted.
   */
  static WorkerProcess start(String name, WorkerSettings settings) {
    long startedNs = System.nanoTime();
    Process process;
    try {
      process = WorkerCommand.of(settings.python(), new ProcessBuilder()).start();
    } catch (IOException e) {
      throw notStarted(name, settings.python(), e);
    }
    try {
      return new WorkerProcess(name, process, startedNs, settings, token());
    } catch (RuntimeException | Error e) {
      // An OutOfMemoryError too: without its end the process would live as long as this JVM.
      end(process);
      throw e;
    }
  }

  /** Explains why the system did not start Python: it cannot run it, or resources are short. */
  static CairnException notStarted(String name, String python, IOException error) {
    if (OpenFiles.areTooMany(error)) {
      return OpenFiles.error("the system did not start worker " + name, error);
    }
    Matcher number = SYSTEM_ERROR.matcher(String.valueOf(error.getMessage()));
    if (number.find() && !NOT_RUNNABLE.contains(Integer.valueOf(number.group(1)))) {
      return CairnException.of(
          ErrorKind.RETRY,
          "CAIRN_WORKER_START",
          "the system did not start worker " + name + ": " + error.getMessage(),
          "raise the container's limits of processes or memory",
          error);
    }
    return CairnException.of(
        ErrorKind.INVALID,
        "CAIRN_PYTHON",
        "cannot run Python '" + python + "': " + error.getMessage(),
        "set spark.sql.streaming.stateStore.cairn.python to a Python 3.11 or later that every"
            + " executor has, with the package cairn-state installed",
        error);
  }

  private JsonNode handshake(WorkerSettings settings, String token) {
    WorkerSettings.Resources resources = settings.resources();
    ObjectNode hello = Json.object();
    hello.put("token", token).put("worker", name).put("protocol", FrameHeader.PROTOCOL);
    hello.put("release", Release.NAME);
    hello.put("local_dir", settings.localDir()).put("socket_dir", socketDir().toString());
    hello
        .put("memory_bytes", resources.memoryBytes())
        .put("local_disk_bytes", resources.localDiskBytes())
        .put("keeps_cache", settings.keepsCache());
    try {
      input.write((Json.MAPPER.writeValueAsString(hello) + "\n").getBytes(StandardCharsets.UTF_8));
      input.flush();
    } catch (IOException e) {
      throw ended(settings);
    }
    JsonNode ready;
    try {
      String answer = output.awaitAnswer(settings.timeouts().startMs());
      if (answer == null) {
        throw ended(settings);
      }
      ready = Json.MAPPER.readTree(answer);
    } catch (JsonProcessingException e) {
      throw CairnException.protocol("the answer of worker " + name + " is no JSON");
    } catch (TimeoutException e) {
      throw CairnException.of(
          ErrorKind.RETRY,
          "CAIRN_WORKER_START",
          "worker "
              + name
              + " did not start within "
              + settings.timeouts().startMs()
              + " ms"
              + output.last(),
          "find out why Python starts slowly on this machine");
    }
    if (ready.hasNonNull("error")) {
      throw CairnException.fromEngine(ready.get("error"));
    }
    return ready;
  }

  /** Explains why a worker ended during its start: often its Python lacks our package. */
  private CairnException ended(WorkerSettings settings) {
    String how = output.awaitEnd();
    String last = output.last();
    Matcher missing = NO_MODULE.matcher(last);
    if (missing.find()) {
      return CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_PYTHON",
          "Python '" + settings.python() + "' has no package " + missing.group(1),
          "install cairn-state into that Python on every executor (pip install its wheel), or set"
              + " spark.sql.streaming.stateStore.cairn.python to one that has it");
    }
    if (TOO_OLD.matcher(last).find()) {
      return CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_PYTHON",
          "Python '" + settings.python() + "' cannot run the engine" + last,
          "set spark.sql.streaming.stateStore.cairn.python to a Python 3.11 or later that every"
              + " executor has, with the package cairn-state installed");
    }
    return CairnException.of(
        ErrorKind.RETRY,
        "CAIRN_WORKER_START",
        "worker " + name + " of Python '" + settings.python() + "' " + how + last,
        "see the executor's log");
  }

  /**
   * Calls a method; see {@link ControlChannel#call}.
   *
   * @param store for the log
   */
  JsonNode call(String method, ObjectNode arguments, String store) {
    try {
      return control.call(method, arguments, store);
    } catch (CairnException e) {
      throw described(e, method);
    }
  }

  /**
   * Receives the reply to a COMMIT, however long the worker moves: a commit may upload a snapshot.
   * After an error, or if the task was cancelled, the outcome of the commit is unknown.
   */
  FrameHeader receiveCommit(DataChannel channel) {
    return receiveLate(
        channel, "commit", ", whose outcome is unknown", Cancellation.COMMIT_GRACE_MS);
  }

  /** Receives a page of changes, however long the worker moves: it may download a changelog. */
  FrameHeader receiveChanges(DataChannel channel) {
    return receiveLate(channel, "read of changes", "", Cancellation.CALL_GRACE_MS);
  }

  private FrameHeader receiveLate(
      DataChannel channel, String request, String ifCancelled, long graceMs) {
    try (Cancellation cancellation = new Cancellation(graceMs)) {
      ControlChannel.Silence silence = control.new Silence();
      long askNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeouts.requestMs());
      while (!channel.awaitReply(Cancellation.CHECK_MS)) {
        cancellation.check("a " + request + ifCancelled);
        if (System.nanoTime() > askNs) {
          if (silence.isTooLong(control.activity(cancellation, request))) {
            throw control.silent(request, "");
          }
          askNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeouts.requestMs());
        }
      }
      return channel.receive();
    } catch (CairnException e) {
      channel.abandon();
      throw described(e, request);
    }
  }

  /** The error of a call, with the worker's last output if it has ended. */
  private CairnException described(CairnException error, String method) {
    return error.isWorkerLost() && !isAlive() && !isGivenUp
        ? CairnException.workerLost(
            "worker " + name + " died during the call " + method + output.last(), error)
        : error;
  }

  ChannelPool channels() {
    return channels;
  }

  /** Lets the worker use the file systems of this JVM. Idempotent. */
  void serveFiles() {
    storage.open();
  }

  /**
   * Ends the process. Its running snapshots may end first, within {@link #END_WAIT_MS}: nothing of
   * an upload without a manifest helps the next run. If the process is stuck, this takes longer.
   */
  void finish() {
    try {
      if (isAlive()) {
        ObjectNode arguments = Json.object().put("snapshot_wait_ms", END_WAIT_MS);
        JsonNode left = control.call("finish", arguments, "of " + name).path("left");
        if (!left.isEmpty()) {
          LOG.warn(
              "{} ends while snapshots are being uploaded, of {} stores, after {} s: {}. The next"
                  + " run of the query begins them again",
              name,
              left.size(),
              END_WAIT_MS / 1000,
              left);
        }
      }
    } catch (CairnException e) {
      LOG.warn("{} ends without a wait for its snapshots: {}", name, e.getMessage());
    } finally {
      close();
    }
  }

  /** Kills a process that no longer answers, which also ends every wait on its sockets. */
  void giveUp() {
    isGivenUp = true;
    process.destroyForcibly();
  }

  boolean isAlive() {
    return !isGivenUp && process.isAlive();
  }

  /** Waits up to a second for the end of a worker that seems to be ending. */
  void awaitEnd() {
    boolean interrupted = Thread.interrupted();
    try {
      process.waitFor(1, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      interrupted = true;
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  long pid() {
    return process.pid();
  }

  long takeStartMs() {
    return startMs.getAndSet(0);
  }

  @Override
  public void close() {
    channels.close();
    storage.close();
    control.close();
    end(process);
    // A worker that was killed has left it. A folder of a worker that did not get as far as its
    // answer is removed by the next worker.
    socket.toFile().delete();
    socket.getParent().toFile().delete();
  }

  private static void end(Process process) {
    try {
      process.getOutputStream().close();
      if (!process.waitFor(5, TimeUnit.SECONDS)) {
        process.destroyForcibly();
      }
    } catch (IOException e) {
      process.destroyForcibly();
    } catch (InterruptedException e) {
      process.destroyForcibly();
      Thread.currentThread().interrupt();
    }
  }

  /**
   * Where the worker creates the folder of its socket: a path that is short enough for a Unix
   * socket (paths of YARN's containers are too long).
   */
  private static Path socketDir() {
    Path parent = Path.of(System.getProperty("java.io.tmpdir")).toAbsolutePath();
    boolean isLong =
        parent.toString().getBytes(StandardCharsets.UTF_8).length + 40 > SOCKET_PATH_BYTES;
    return isLong ? Path.of("/tmp") : parent;
  }

  private static String token() {
    byte[] random = new byte[32];
    new SecureRandom().nextBytes(random);
    return HexFormat.of().formatHex(random);
  }
}
