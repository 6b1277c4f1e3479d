package io.cairn.spark.engine;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.protocol.Json;
import io.cairn.spark.protocol.SessionId;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The part of one provider object that runs in a worker: opened there at its first call, and opened
 * again in the next worker after the first one has died.
 *
 * <p>Thread-safe: maintenance runs concurrently with sessions. The caller knows which version it
 * has loaded in the engine; {@link #isOpen} says whether that version is still loaded.
 */
public final class EngineInstance implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(EngineInstance.class);

  private final int number = WorkerPool.nextInstance();
  private final WorkerPool pool;
  private final String group;
  private final String store;
  private final Supplier<ObjectNode> openArguments;
  private WorkerPool.Worker worker;
  private WorkerProcess process;

  /** The process may not have the instance, or not in a usable state. */
  private boolean needsOpen = true;

  /** Whether the worker reaches the storage through this JVM. */
  private volatile boolean needsFiles;

  private boolean isClosed;
  private int sessionCount;
  private final AtomicBoolean hasWarnedOfRefusal = new AtomicBoolean();

  /**
   * @param group stores of one group share a worker
   * @param store its name, for errors
   * @param openArguments called whenever the instance is opened, because credentials may change;
   *     {@code instance} is added here
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

  /**
   * Notes that the worker refused a request of rows that no read waits for yet. Logs the first one
   * only: a fault that stays refuses one in every batch, or in every page of a scan.
   */
  void noteRefusedAhead(CairnException error) {
    if (hasWarnedOfRefusal.compareAndSet(false, true)) {
      LOG.warn(
          "The worker refused to read rows ahead, and logs no further refusal of this store: {}."
              + " Rows are right, but slower: reads ask for these rows again, one by one if need"
              + " be, and the next batch loads its version again",
          error.getMessage());
    }
  }

  /** The id of a new session, larger than those before. One caller at a time. */
  public long nextSession() {
    return SessionId.of(number, ++sessionCount);
  }

  /** Calls a method of the instance; opens the instance first if it is not open. */
  JsonNode call(String method, ObjectNode arguments) {
    return open().call(method, arguments.put("instance", number), store);
  }

  /**
   * Calls a method that needs no earlier state in the engine, such as a load. Repeats it once if
   * {@link #prepareRetry} returns true.
   */
  public JsonNode callWithRetry(String method, ObjectNode arguments) {
    try {
      return call(method, arguments);
    } catch (CairnException e) {
      if (!prepareRetry(e)) {
        throw e;
      }
      return call(method, arguments);
    }
  }

  /**
   * Prepares for a repetition of the call that failed: in another worker if this one is gone, with
   * renewed credentials if they were refused. False: a repetition would fail too, or, after a
   * timeout, take as long again.
   */
  boolean prepareRetry(CairnException error) {
    if (error.areCredentialsRefused()) {
      // The job may have renewed them since. The loaded version stays loaded.
      openIn(open());
      return true;
    }
    if (!error.isWorkerLost() && !error.isInstanceUnknown()) {
      return false;
    }
    WorkerProcess lost;
    synchronized (this) {
      lost = process;
      needsOpen = true;
    }
    if (lost != null && error.isWorkerLost()) {
      // Its sockets break shortly before the process is reported as ended.
      lost.awaitEnd();
    }
    return true;
  }

  /** Calls a method if the instance is open in a living worker; otherwise returns null. */
  public JsonNode callIfOpen(String method, ObjectNode arguments) {
    WorkerProcess current;
    synchronized (this) {
      current = isOpen() ? process : null;
    }
    return current == null ? null : current.call(method, arguments.put("instance", number), store);
  }

  /**
   * Returns the process that has the instance; opens it there first if it is not open. Maintenance
   * and {@link #close} do not wait for that: no lock is held meanwhile.
   */
  WorkerProcess open() {
    WorkerPool.Worker joined;
    synchronized (this) {
      if (isClosed) {
        throw CairnException.closed(store);
      }
      if (isOpen()) {
        if (needsFiles) {
          process.serveFiles(); // a connection that failed before is tried again
        }
        return process;
      }
      if (worker == null) {
        worker = pool.join(group);
      }
      joined = worker;
    }
    // Two threads may do this at the same time: the worker takes the second call as the first one.
    WorkerProcess current = joined.process();
    synchronized (this) {
      if (isClosed) {
        throw CairnException.closed(store);
      }
      process = current;
    }
    openIn(current);
    synchronized (this) {
      if (!isClosed) {
        needsOpen = false;
        return current;
      }
    }
    closeIn(current);
    throw CairnException.closed(store);
  }

  private void closeIn(WorkerProcess last) {
    ObjectNode arguments =
        Json.object().put("instance", number).put("snapshot_wait_ms", WorkerProcess.END_WAIT_MS);
    last.call("close_instance", arguments, store);
  }

  private void openIn(WorkerProcess target) {
    ObjectNode arguments = openArguments.get().put("instance", number);
    needsFiles = arguments.path("storage").has(StorageConnections.FILE_SYSTEM);
    if (needsFiles) {
      target.serveFiles();
    }
    target.call("open_instance", arguments, store);
  }

  /** Whether the instance is open in a living worker, with the version that was loaded there. */
  public synchronized boolean isOpen() {
    return !needsOpen && process.isAlive();
  }

  /** How long the start of the worker took; 0 for every caller but the first. */
  public synchronized long takeStartMs() {
    return process == null ? 0 : process.takeStartMs();
  }

  @Override
  public void close() {
    WorkerProcess last;
    boolean hasJoined;
    synchronized (this) {
      if (isClosed) {
        return;
      }
      isClosed = true;
      last = process;
      process = null;
      needsOpen = true;
      hasJoined = worker != null;
    }
    try {
      if (last != null && last.isAlive()) {
        closeIn(last);
      }
    } finally {
      if (hasJoined) {
        pool.leave(group); // the pool may end the process from here on
      }
    }
  }
}
