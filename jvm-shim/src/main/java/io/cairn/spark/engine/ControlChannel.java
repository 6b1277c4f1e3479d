package io.cairn.spark.engine;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import java.net.InetAddress;
import java.net.SocketTimeoutException;
import java.util.concurrent.TimeUnit;
import javax.net.SocketFactory;
import py4j.CallbackClient;
import py4j.Gateway;
import py4j.GatewayServer;
import py4j.Py4JException;

/**
 * Control calls to one worker over Py4J: a handful a batch and partition, never one a row.
 * Thread-safe.
 *
 * <p>A connection belongs to no thread but to the call that uses it, and is kept for the next one:
 * there are as many as calls ever ran at once, however many threads come and go. (Py4J's {@code
 * ClientServer} would hold one for every thread that ever called.) The JVM opens no port: no Java
 * server of Py4J's is started.
 */
final class ControlChannel implements AutoCloseable {
  static final ObjectMapper JSON = new ObjectMapper();

  /**
   * As the time after which Py4J closes an idle connection, in a thread that outlives the JVM's.
   */
  private static final long KEPT_FOR_EVER = 0;

  private final CallbackClient client;
  private final EngineEntry entry;
  private final String worker;
  private final int timeoutMs;
  private final Runnable whenSilent;

  /**
   * @param timeoutMs above the longest call that ends well
   * @param whenSilent told of a call that was not answered within that time
   */
  ControlChannel(String worker, int port, String token, int timeoutMs, Runnable whenSilent) {
    this.worker = worker;
    this.timeoutMs = timeoutMs;
    this.whenSilent = whenSilent;
    // Py4J would log every command at INFO, and commands hold secrets.
    GatewayServer.turnLoggingOff();
    client =
        new CallbackClient(
            port,
            InetAddress.getLoopbackAddress(),
            token,
            KEPT_FOR_EVER,
            TimeUnit.MILLISECONDS,
            SocketFactory.getDefault(),
            false,
            timeoutMs);
    entry =
        (EngineEntry)
            client.getPythonServerEntryPoint(
                new Gateway(null, client), new Class<?>[] {EngineEntry.class});
  }

  /** Calls a method; its error is thrown, with what the engine says of it. */
  JsonNode call(String method, ObjectNode arguments) {
    boolean interrupted = Thread.interrupted();
    try {
      JsonNode answer = JSON.readTree(entry.call(method, JSON.writeValueAsString(arguments)));
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
        throw CairnException.of(
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
                + WorkerSettings.REQUESTS_PER_CALL
                + " times as much, or see what keeps the engine busy");
      }
      // Py4J's own messages echo arguments, which may hold secrets: they stay out of ours.
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
