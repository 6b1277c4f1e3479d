package io.cairn.spark.engine;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.errors.OpenFiles;
import io.cairn.spark.protocol.Json;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import javax.net.SocketFactory;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import py4j.CallbackClient;
import py4j.Gateway;
import py4j.GatewayServer;
import py4j.Py4JException;

/**
 * Control calls to one worker over Py4J: a few per batch and partition, never one per row.
 * Thread-safe.
 *
 * <p>A call is a job of the worker, and several messages: the first begins it, the others ask for
 * its result. The worker answers each of them soon, so a call may take hours while the worker
 * moves, and a message without an answer means that the worker is stuck. Py4J's sockets ignore
 * interrupts: threads of this class use them, and the caller, which may be cancelled, waits for
 * these threads.
 *
 * <p>A connection belongs to the message that uses it, and the next one reuses it. So their number
 * is the highest number of concurrent messages, whereas Py4J's {@code ClientServer} keeps one per
 * thread. The JVM opens no port: Py4J's Java server is not started.
 */
final class ControlChannel implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(ControlChannel.class);

  /** Where workers listen; Java's own may be {@code ::1}. */
  private static final InetAddress LOOPBACK = new InetSocketAddress("127.0.0.1", 0).getAddress();

  /** Py4J never closes an idle connection; to do so it would start a thread that never ends. */
  private static final long NO_IDLE_TIMEOUT = 0;

  private static final long LOG_EVERY_NS = TimeUnit.SECONDS.toNanos(10);
  private static final AtomicLong JOBS = new AtomicLong();
  private static final AtomicInteger THREADS = new AtomicInteger();

  /** How the waits for a worker end. */
  record Limits(int messageMs, int silenceMs) {
    /** How long the worker may wait for a result before it answers without one. */
    int waitMs() {
      return Math.min(250, messageMs / 4);
    }
  }

  private final ExecutorService threads = Executors.newCachedThreadPool(ControlChannel::thread);
  private final CallbackClient client;
  private final EngineEntry entry;
  private final String worker;
  private final Limits limits;
  private final Runnable whenStuck;

  /**
   * @param limits of a message, and of a time in which the worker finishes nothing
   * @param whenStuck runs if a message is not answered in time
   */
  ControlChannel(String worker, int port, String token, Limits limits, Runnable whenStuck) {
    this.worker = worker;
    this.limits = limits;
    this.whenStuck = whenStuck;
    // Py4J would log every command at INFO, and commands contain secrets.
    GatewayServer.turnLoggingOff();
    client =
        new CallbackClient(
            port,
            LOOPBACK,
            token,
            NO_IDLE_TIMEOUT,
            TimeUnit.MILLISECONDS,
            SocketFactory.getDefault(),
            false,
            limits.messageMs);
    entry =
        (EngineEntry)
            client.getPythonServerEntryPoint(
                new Gateway(null, client), new Class<?>[] {EngineEntry.class});
  }

  private static Thread thread(Runnable work) {
    return DaemonThreads.of("cairn-control-" + THREADS.incrementAndGet(), work);
  }

  /**
   * Calls a method and waits for its result, however long the worker moves; throws the error if the
   * engine answers with one.
   *
   * @param store for the log
   */
  JsonNode call(String method, ObjectNode arguments, String store) {
    long job = JOBS.incrementAndGet();
    boolean isDone = false;
    try (Cancellation cancellation = new Cancellation(Cancellation.CALL_GRACE_MS)) {
      long startedNs = System.nanoTime();
      long loggedNs = startedNs;
      Silence silence = new Silence();
      arguments.put("job", job).put("answer_within_ms", limits.waitMs());
      JsonNode answer = exchange(method, arguments, cancellation, method);
      while (answer.has("running")) {
        JsonNode running = answer.get("running");
        long now = System.nanoTime();
        if (silence.isTooLong(running.path("moved").asLong())) {
          throw silent(method, running.path("text").asText());
        }
        if (now - loggedNs > LOG_EVERY_NS) {
          loggedNs = now;
          LOG.info(
              "store {}: the call {} runs since {} s and {}",
              store,
              method,
              TimeUnit.NANOSECONDS.toSeconds(now - startedNs),
              running.path("text").asText());
        }
        ObjectNode waiting = Json.object().put("job", job).put("answer_within_ms", limits.waitMs());
        answer = exchange("await", waiting, cancellation, method);
      }
      isDone = true;
      return result(answer, method);
    } finally {
      if (!isDone) {
        try {
          threads.execute(() -> giveUp(job));
        } catch (RejectedExecutionException ended) {
          LOG.debug("worker {} was ended, with the call {}", worker, method);
        }
      }
    }
  }

  /** Notices when the worker has finished nothing for too long. */
  final class Silence {
    private long moved = -1;
    private long sinceNs = System.nanoTime();

    /** Whether it has, if {@code newMoved} is what it has finished until now. */
    boolean isTooLong(long newMoved) {
      if (newMoved != moved) {
        moved = newMoved;
        sinceNs = System.nanoTime();
      }
      return System.nanoTime() - sinceNs > TimeUnit.MILLISECONDS.toNanos(limits.silenceMs);
    }
  }

  /** How much the worker has finished since its start: it moves if this changes. */
  long activity(Cancellation cancellation, String what) {
    JsonNode answer = exchange("activity", Json.object(), cancellation, what);
    return result(answer, "activity").path("moved").asLong();
  }

  private static JsonNode result(JsonNode answer, String method) {
    JsonNode error = answer.get("error");
    if (error != null && !error.isNull()) {
      throw CairnException.fromEngine(error);
    }
    JsonNode ok = answer.get("ok");
    if (ok == null) {
      throw CairnException.protocol(
          "the engine's answer to " + method + " has neither ok nor error");
    }
    return ok;
  }

  /**
   * Sends a message and returns its answer. The caller may leave while the message is under way.
   */
  private JsonNode exchange(
      String method, ObjectNode arguments, Cancellation cancellation, String call) {
    String text = arguments.toString();
    try {
      String answer =
          cancellation.await(
              threads.submit(() -> entry.call(method, text)),
              limits.messageMs + 1000L,
              "the call " + call);
      return Json.MAPPER.readTree(answer);
    } catch (RejectedExecutionException e) {
      throw CairnException.workerLost("worker " + worker + " was ended", null);
    } catch (TimeoutException e) {
      throw stuck(call);
    } catch (ExecutionException e) {
      if (isTimeout(e)) {
        throw stuck(call);
      }
      if (!(e.getCause() instanceof Py4JException)) {
        throw CairnException.protocol("the call " + call + " failed: " + e.getCause());
      }
      if (OpenFiles.areTooMany(e.getCause().getCause())) {
        throw OpenFiles.error("no connection to worker " + worker, null);
      }
      // Py4J's messages repeat the arguments, which may contain secrets.
      throw CairnException.workerLost(
          "worker " + worker + " did not answer the call " + call, null);
    } catch (JsonProcessingException e) {
      throw CairnException.protocol("the engine's answer to " + call + " is not JSON");
    }
  }

  private void giveUp(long job) {
    try {
      entry.call("cancel", Json.object().put("job", job).toString());
    } catch (Py4JException e) {
      LOG.debug("worker {} did not receive a cancellation", worker);
    }
  }

  private CairnException stuck(String call) {
    whenStuck.run();
    return CairnException.of(
        ErrorKind.RETRY,
        "CAIRN_ENGINE_TIMEOUT",
        "worker "
            + worker
            + " did not answer the call "
            + call
            + " within "
            + limits.messageMs
            + " ms and was ended, with all its stores",
        "raise spark.sql.streaming.stateStore.cairn.requestTimeoutMs, or find out what keeps the"
            + " engine busy");
  }

  /**
   * The error of a call that was given up, because the worker finished nothing.
   *
   * @param last what the call had done
   */
  CairnException silent(String call, String last) {
    return CairnException.of(
        ErrorKind.RETRY,
        "CAIRN_ENGINE_TIMEOUT",
        "worker "
            + worker
            + " finished nothing for "
            + limits.silenceMs
            + " ms, so the call "
            + call
            + " was given up"
            + (last.isEmpty() ? "" : "; it " + last),
        "find out why the object store or the local disk does not answer, or raise"
            + " spark.sql.streaming.stateStore.cairn.requestTimeoutMs, of which this limit is ten"
            + " times");
  }

  private static boolean isTimeout(Throwable error) {
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (cause instanceof SocketTimeoutException) {
        return true;
      }
    }
    return false;
  }

  @Override
  public void close() {
    client.shutdown();
    threads.shutdown();
  }
}
