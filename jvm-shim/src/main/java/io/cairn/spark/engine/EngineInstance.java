package io.cairn.spark.engine;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.errors.CairnException;
import java.util.function.Supplier;

/**
 * One provider object's half in a worker: opened when first needed, opened again in the next worker
 * when one died.
 *
 * <p>Thread-safe: maintenance runs beside sessions. Which version the engine's half stands at is
 * the caller's to know; {@link #isWhereItWas} says whether that knowledge still holds.
 */
public final class EngineInstance implements AutoCloseable {
  private final int number = WorkerPool.nextInstance();
  private final WorkerPool pool;
  private final String group;
  private final String store;
  private final Supplier<ObjectNode> openArguments;
  private WorkerPool.Worker worker;
  private WorkerProcess process;

  /**
   * The process may not have the instance, or not as it was: it is opened anew before it is used.
   */
  private boolean needsOpen = true;

  private boolean closed;

  /**
   * @param group stores of one group share a worker
   * @param store its name, for errors
   * @param openArguments made anew for each opening, as credentials may have changed; {@code
   *     instance} is filled in here
   */
  public EngineInstance(
      WorkerPool pool, String group, String store, Supplier<ObjectNode> openArguments) {
    this.pool = pool;
    this.group = group;
    this.store = store;
    this.openArguments = openArguments;
  }

  String store() {
    return store;
  }

  public static ObjectNode object() {
    return ControlChannel.JSON.createObjectNode();
  }

  /** Calls a method of the instance where it is open; opens it first if it is not. */
  public JsonNode call(String method, ObjectNode arguments) {
    return open().call(method, arguments.put("instance", number));
  }

  /**
   * Calls a method that sets up its own state in the engine, such as a load: repeated once, in
   * another worker if the first one is gone, with renewed keys if the old ones have expired. Not
   * repeated is a call that was not answered in time: it would take as long again.
   */
  public JsonNode callRepeating(String method, ObjectNode arguments) {
    try {
      return call(method, arguments);
    } catch (CairnException e) {
      if (!prepareRepeat(e)) {
        throw e;
      }
      return call(method, arguments);
    }
  }

  /**
   * Does what the same again needs to succeed after this error, or leaves it to the next call.
   * False: the same again would fail again.
   */
  boolean prepareRepeat(CairnException error) {
    return prepareOpening(error) || renewKeys(error);
  }

  /**
   * Temporary keys that have expired: the job's own may have been renewed since. Whatever the
   * instance has loaded stays.
   */
  private boolean renewKeys(CairnException error) {
    if (!error.areKeysExpired()) {
      return false;
    }
    open().call("open_instance", openArguments.get().put("instance", number));
    return true;
  }

  /**
   * If the error says that the engine no longer has this instance, has it opened anew at the next
   * call.
   */
  private boolean prepareOpening(CairnException error) {
    if (!error.isWorkerLost() && !error.code().equals("CAIRN_UNKNOWN_INSTANCE")) {
      return false;
    }
    WorkerProcess lost;
    synchronized (this) {
      lost = process;
      needsOpen = true;
    }
    if (lost != null && error.isWorkerLost()) {
      // Its sockets break a moment before the process is seen to end.
      lost.awaitEnd();
    }
    return true;
  }

  /** Calls a method only if the instance is open in a living worker; null if not. */
  public JsonNode callIfOpen(String method, ObjectNode arguments) {
    WorkerProcess current;
    synchronized (this) {
      current = closed || !isWhereItWas() ? null : process;
    }
    return current == null ? null : current.call(method, arguments.put("instance", number));
  }

  synchronized WorkerProcess open() {
    if (closed) {
      throw CairnException.closed(store);
    }
    if (isWhereItWas()) {
      return process;
    }
    if (worker == null) {
      worker = pool.join(group);
    }
    WorkerProcess current = worker.process();
    current.call("open_instance", openArguments.get().put("instance", number));
    process = current;
    needsOpen = false;
    return current;
  }

  /** Whether the instance is open in a living worker, with whatever was loaded there. */
  public synchronized boolean isWhereItWas() {
    return !needsOpen && process.isAlive();
  }

  /** How long the start of the present worker took, told once a worker: 0 to whoever asks later. */
  public synchronized long takeStartMs() {
    return process == null ? 0 : process.takeStartMs();
  }

  public int number() {
    return number;
  }

  @Override
  public void close() {
    WorkerProcess last;
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
      last = process;
      process = null;
      needsOpen = true;
      if (worker != null) {
        pool.leave(group);
      }
    }
    if (last != null && last.isAlive()) {
      last.call("close_instance", object().put("instance", number));
    }
  }
}
