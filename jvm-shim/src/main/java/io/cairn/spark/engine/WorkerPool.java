package io.cairn.spark.engine;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The workers of this JVM: started when the first store needs one, started again when one died.
 *
 * <p>All stores of one (query, operator, partition) are on the same worker, so that their commits
 * share its work; a new group goes to the worker with the fewest. Thread-safe.
 */
public final class WorkerPool {
  private static final Logger LOG = LoggerFactory.getLogger(WorkerPool.class);
  private static final ConcurrentHashMap<WorkerSettings, WorkerPool> POOLS =
      new ConcurrentHashMap<>();
  private static final AtomicInteger NEXT_INSTANCE = new AtomicInteger();
  private static final AtomicLong STARTS = new AtomicLong();

  static {
    Runtime.getRuntime().addShutdownHook(new Thread(WorkerPool::closeAll, "cairn-engine-stop"));
  }

  private final WorkerSettings settings;
  private final Worker[] workers;
  private final Map<String, Place> places = new HashMap<>();

  private WorkerPool(WorkerSettings settings) {
    this.settings = settings;
    workers = new Worker[settings.workers()];
    for (int index = 0; index < workers.length; index++) {
      workers[index] = new Worker("worker-" + index);
    }
  }

  /**
   * The pool for these settings; starts nothing. Two queries that differ in them have workers of
   * their own.
   */
  public static WorkerPool of(WorkerSettings settings) {
    return POOLS.computeIfAbsent(settings, WorkerPool::made);
  }

  private static WorkerPool made(WorkerSettings settings) {
    if (!POOLS.isEmpty()) {
      LOG.warn(
          "Queries of this executor differ in their settings of the engine: each set of them has"
              + " workers and memory of its own. Next: give all the same spark.sql.streaming"
              + ".stateStore.cairn.* settings");
    }
    return new WorkerPool(settings);
  }

  /** A number for a provider instance, unique in this JVM, from 1. */
  static int nextInstance() {
    return NEXT_INSTANCE.incrementAndGet();
  }

  /** Worker starts of this JVM so far; tests and metrics read it. */
  public static long starts() {
    return STARTS.get();
  }

  /** Ends every worker. Stores that are used afterwards start new ones. */
  public static void closeAll() {
    for (WorkerPool pool : POOLS.values()) {
      for (Worker worker : pool.workers) {
        worker.stop();
      }
    }
  }

  /** The worker for a group of stores, which must be given back by {@link #leave}. */
  synchronized Worker join(String group) {
    Place place = places.get(group);
    if (place == null) {
      Worker least = workers[0];
      for (Worker worker : workers) {
        if (worker.groups < least.groups) {
          least = worker;
        }
      }
      least.groups++;
      place = new Place(least);
      places.put(group, place);
    }
    place.members++;
    return place.worker;
  }

  synchronized void leave(String group) {
    Place place = places.get(group);
    if (place != null && --place.members == 0) {
      place.worker.groups--;
      places.remove(group);
    }
  }

  private static final class Place {
    final Worker worker;
    int members;

    Place(Worker worker) {
      this.worker = worker;
    }
  }

  /** A place for one process at a time. */
  final class Worker {
    private final String name;
    private WorkerProcess process;
    private int groups;

    private Worker(String name) {
      this.name = name;
    }

    /** The living process; started if there is none. Blocks while another thread starts it. */
    synchronized WorkerProcess process() {
      if (process != null && !process.isAlive()) {
        LOG.warn("{} (process {}) has died; starting another", name, process.pid());
        process.close();
        process = null;
      }
      if (process == null) {
        STARTS.incrementAndGet();
        process = WorkerProcess.start(name, settings);
      }
      return process;
    }

    private synchronized void stop() {
      if (process != null) {
        process.close();
        process = null;
      }
    }
  }
}
