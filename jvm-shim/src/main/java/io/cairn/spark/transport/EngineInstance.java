package io.cairn.spark.transport;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.function.Supplier;

/**
 * One provider object's half in a worker: opened when first needed, opened again in the next worker
 * when one died.
 *
 * <p>Thread-safe: maintenance runs beside sessions. Which version the engine's half stands at is
 * the caller's to know; {@link #isWhereItWas} says whether that knowledge still holds.
 */
public final class EngineInstance implements AutoCloseable {
  private final int number = EnginePool.nextInstance();
  private final EnginePool pool;
  private final String group;
  private final Supplier<ObjectNode> openArguments;
  private EnginePool.Worker worker;
  private EngineProcess process;
  private boolean closed;

  /**
   * @param group stores of one group share a worker
   * @param openArguments made anew for each opening, as credentials may have changed; {@code
   *     instance} is filled in here
   */
  public EngineInstance(EnginePool pool, String group, Supplier<ObjectNode> openArguments) {
    this.pool = pool;
    this.group = group;
    this.openArguments = openArguments;
  }

  public static ObjectNode object() {
    return Control.JSON.createObjectNode();
  }

  /** Calls a method of the instance where it is open; opens it first if it is not. */
  public JsonNode call(String method, ObjectNode arguments) {
    return open().call(method, arguments.put("instance", number));
  }

  /**
   * Calls a method that sets up its own state in the engine, such as a load: repeated once, in
   * another worker if the first one is gone, with renewed keys if the old ones have expired.
   */
  public JsonNode callRepeating(String method, ObjectNode arguments) {
    try {
      return call(method, arguments);
    } catch (CairnException e) {
      if (!recovers(e)) {
        throw e;
      }
      return call(method, arguments);
    }
  }

  /**
   * Whether the same again may succeed after this error; what that needs is done here, or at the
   * next call.
   */
  boolean recovers(CairnException error) {
    return forgets(error) || renews(error);
  }

  /**
   * Temporary keys that have expired: the job's own may have been renewed since. Whatever the
   * instance has loaded stays.
   */
  private boolean renews(CairnException error) {
    if (!error.areKeysExpired()) {
      return false;
    }
    open().call("open_instance", openArguments.get().put("instance", number));
    return true;
  }

  /**
   * Whether the error says that the engine no longer has this instance; then it is opened anew at
   * the next call.
   */
  private boolean forgets(CairnException error) {
    if (!error.isWorkerLost() && !error.code().equals("CAIRN_UNKNOWN_INSTANCE")) {
      return false;
    }
    EngineProcess lost;
    synchronized (this) {
      lost = process;
      process = null;
    }
    if (lost != null && error.isWorkerLost()) {
      // Its sockets break a moment before the process is seen to end.
      lost.awaitEnd();
    }
    return true;
  }

  /** Calls a method only if the instance is open in a living worker; null if not. */
  public JsonNode callIfOpen(String method, ObjectNode arguments) {
    EngineProcess current;
    synchronized (this) {
      current = closed || process == null || !process.isAlive() ? null : process;
    }
    return current == null ? null : current.call(method, arguments.put("instance", number));
  }

  synchronized EngineProcess open() {
    if (closed) {
      throw CairnException.closed("the store's provider is closed");
    }
    if (process != null && process.isAlive()) {
      return process;
    }
    if (worker == null) {
      worker = pool.join(group);
    }
    EngineProcess current = worker.process();
    current.call("open_instance", openArguments.get().put("instance", number));
    process = current;
    return current;
  }

  /** Whether the instance is open in a living worker, with whatever was loaded there. */
  public synchronized boolean isWhereItWas() {
    return process != null && process.isAlive();
  }

  /** How long the start of the present worker took, told once a worker: 0 to whoever asks later. */
  public synchronized long takeStartMs() {
    return process == null ? 0 : process.takeStartMs();
  }

  /** Process id of the present worker, or 0. */
  public synchronized long workerPid() {
    return process == null ? 0 : process.pid();
  }

  public int number() {
    return number;
  }

  @Override
  public void close() {
    EngineProcess last;
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
      last = process;
      process = null;
      if (worker != null) {
        pool.leave(group);
      }
    }
    if (last != null && last.isAlive()) {
      last.call("close_instance", object().put("instance", number));
    }
  }
}
