package io.cairn.spark.engine;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.protocol.Json;
import io.cairn.spark.settings.WorkerSettings;
import java.net.InetAddress;
import java.net.SocketTimeoutException;
import java.util.concurrent.TimeUnit;
import javax.net.SocketFactory;
import py4j.CallbackClient;
import py4j.Gateway;
import py4j.GatewayServer;
import py4j.Py4JException;

/**
 * Control calls to one worker over Py4J: a few per batch and partition, never one per row.
 * Thread-safe.
 *
 * <p>A connection belongs to the call that uses it, and the next call reuses it. So their number is
 * the highest number of concurrent calls, whereas Py4J's {@code ClientServer} keeps one per thread.
 * The JVM opens no port: Py4J's Java server is not started.
 */
final class ControlChannel implements AutoCloseable {
  /** Py4J never closes an idle connection; to do so it would start a thread that never ends. */
  private static final long NO_IDLE_TIMEOUT = 0;

  private final CallbackClient client;
  private final EngineEntry entry;
  private final String worker;
  private final int timeoutMs;
  private final Runnable whenSilent;

  /**
   * @param timeoutMs longer than any successful call
   * @param whenSilent runs if a call is not answered within that time
   */
  ControlChannel(String worker, int port, String token, int timeoutMs, Runnable whenSilent) {
    this.worker = worker;
    this.timeoutMs = timeoutMs;
    this.whenSilent = whenSilent;
    // Py4J would log every command at INFO, and commands contain secrets.
    GatewayServer.turnLoggingOff();
    client =
        new CallbackClient(
            port,
            InetAddress.getLoopbackAddress(),
            token,
            NO_IDLE_TIMEOUT,
            TimeUnit.MILLISECONDS,
            SocketFactory.getDefault(),
            false,
            timeoutMs);
    entry =
        (EngineEntry)
            client.getPythonServerEntryPoint(
                new Gateway(null, client), new Class<?>[] {EngineEntry.class});
  }

  /** Calls a method; throws the error if the engine answers with one. */
  JsonNode call(String method, ObjectNode arguments) {
    boolean interrupted = Thread.interrupted();
    try {
      JsonNode answer =
          Json.MAPPER.readTree(entry.call(method, Json.MAPPER.writeValueAsString(arguments)));
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
    } catch (Py4JException e) {
      if (isTimeout(e)) {
        whenSilent.run();
        throw silent(worker, method, timeoutMs);
      }
      // Py4J's messages repeat the arguments, which may contain secrets.
      throw CairnException.workerLost(
          "worker "
              + worker
              + " did not answer the call "
              + method
              + " ("
              + e.getClass().getSimpleName()
              + ")",
          null);
    } catch (JsonProcessingException e) {
      throw CairnException.protocol("the engine's answer to " + method + " is not JSON");
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** The error of a worker that was ended because it did not answer in time. */
  static CairnException silent(String worker, String method, int timeoutMs) {
    return CairnException.of(
        ErrorKind.RETRY,
        "CAIRN_ENGINE_TIMEOUT",
        "worker "
            + worker
            + " did not answer the call "
            + method
            + " within "
            + timeoutMs
            + " ms and was ended, with all its stores",
        "raise spark.sql.streaming.stateStore.cairn.requestTimeoutMs, of which a call may take "
            + WorkerSettings.Timeouts.REQUESTS_PER_CALL
            + " times as much, or find out what keeps the engine busy");
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
  }
}
