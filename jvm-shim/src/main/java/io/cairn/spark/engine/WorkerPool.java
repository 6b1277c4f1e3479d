package io.cairn.spark.engine;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.settings.WorkerSettings;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.util.ShutdownHookManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The workers of this JVM. A worker starts when a store first needs it, and again after it has
 * died.
 *
 * <p>All stores of one (query, operator, partition) are a group and share a worker; a new group
 * uses the worker with the fewest groups. Thread-safe.
 */
public final class WorkerPool {
  private static final Logger LOG = LoggerFactory.getLogger(WorkerPool.class);
  private static final ConcurrentHashMap<WorkerSettings, WorkerPool> POOLS =
      new ConcurrentHashMap<>();
  private static final AtomicInteger NEXT_INSTANCE = new AtomicInteger();
  private static final AtomicLong STARTS = new AtomicLong();

  /**
   * How long workers that no store uses stay beside workers of other settings. Tasks that follow
   * each other, each with a store of its own, must not start a worker each.
   */
  private static volatile long keepIdleMs = 60_000;

  /** How long the end of a worker may take after its snapshots. */
  private static final long END_MS = 6_000;

  /** Finds idle workers and ends them. */
  private static final ScheduledThreadPoolExecutor IDLE =
      new ScheduledThreadPoolExecutor(1, work -> DaemonThreads.of("cairn-engine-idle", work));

  static {
    IDLE.setKeepAliveTime(1, TimeUnit.SECONDS);
    IDLE.allowCoreThreadTimeOut(true);
    // After Spark's hook, which stops the queries. Before that of the file systems, because uploads
    // may need them. Each hook of this manager has a time of its own.
    ShutdownHookManager.get()
        .addShutdownHook(
            WorkerPool::closeAll,
            FileSystem.SHUTDOWN_HOOK_PRIORITY + 1,
            WorkerProcess.END_WAIT_MS + 2 * END_MS,
            TimeUnit.MILLISECONDS);
  }

  private final WorkerSettings settings;
  private final Worker[] workers;
  private final Map<String, Group> groups = new HashMap<>();

  /** When the last group left. */
  private long idleSinceNs = System.nanoTime();

  private WorkerPool(WorkerSettings settings) {
    this.settings = settings;
    workers = new Worker[settings.workers()];
    for (int index = 0; index < workers.length; index++) {
      workers[index] = new Worker("worker-" + index);
    }
  }

  /**
   * The pool for these settings; starts no worker. Other settings have other workers.
   *
   * <p>Else each change of a query's settings would leave workers behind, until the end of the JVM.
   * So a new pool ends the workers of every pool that no store uses; a known one, at its first
   * store, those that no store has used for a minute. While a store uses one pool, another pool
   * ends its own workers a minute after its last store was closed. The workers of the only settings
   * in use stay for the next query.
   */
  public static WorkerPool of(WorkerSettings settings) {
    WorkerPool known = POOLS.get(settings);
    if (known != null) {
      return known;
    }
    WorkerPool added = new WorkerPool(settings);
    known = POOLS.putIfAbsent(settings, added);
    if (known != null) {
      return known;
    }
    if (endIdleBeside(added, 0)) {
      LOG.warn(
          "Queries of this executor differ in the settings of the engine, so each of these sets has"
              + " its own workers and memory. Next: give all queries the same spark.sql.streaming"
              + ".stateStore.cairn.* settings");
    }
    return added;
  }

  /** For tests: sets how long idle workers stay; returns the former time. */
  static long keepIdleFor(long ms) {
    long former = keepIdleMs;
    keepIdleMs = ms;
    return former;
  }

  /** For tests: whether a store uses any worker. */
  static boolean areInUse() {
    return used().isPresent();
  }

  private static Optional<WorkerPool> used() {
    return POOLS.values().stream().filter(pool -> !pool.isIdle()).findAny();
  }

  /** Ends the workers of idle pools, if a store uses another pool. */
  private static void endIdle() {
    used().ifPresent(pool -> endIdleBeside(pool, keepIdleMs));
  }

  /**
   * Ends the workers of the other pools that no store has used for a time. REQUIRES: the caller
   * holds the lock of no pool.
   *
   * @return whether a store uses another pool
   */
  private static boolean endIdleBeside(WorkerPool used, long idleMs) {
    List<CompletableFuture<WorkerProcess>> idle = new ArrayList<>();
    boolean isOtherInUse = false;
    for (WorkerPool pool : POOLS.values()) {
      isOtherInUse |= pool != used && !pool.takeIfIdle(idleMs, idle);
    }
    if (!idle.isEmpty()) {
      LOG.info("ending {} workers of other settings, which no store uses any more", idle.size());
      IDLE.execute(() -> idle.forEach(WorkerPool::end));
    }
    return isOtherInUse;
  }

  /**
   * Takes the processes of this pool, unless a store uses it or has used it just now: a store has a
   * group from before it requests the process until it is closed there. The next store starts other
   * processes.
   *
   * @param taken receives them; also those whose start is in progress
   * @return whether no store uses the pool
   */
  private synchronized boolean takeIfIdle(
      long idleMs, List<CompletableFuture<WorkerProcess>> taken) {
    if (!groups.isEmpty()) {
      return false;
    }
    if (System.nanoTime() - idleSinceNs >= TimeUnit.MILLISECONDS.toNanos(idleMs)) {
      for (Worker worker : workers) {
        CompletableFuture<WorkerProcess> process = worker.take();
        if (process != null) {
          taken.add(process);
        }
      }
    }
    return true;
  }

  private synchronized boolean isIdle() {
    return groups.isEmpty();
  }

  /** Ends a process when its snapshots or its start have ended. */
  private static void end(CompletableFuture<WorkerProcess> process) {
    process.thenAccept(WorkerProcess::finish);
  }

  /** Returns a new number for a provider instance, unique in this JVM, from 1. */
  static int nextInstance() {
    return NEXT_INSTANCE.incrementAndGet();
  }

  /** Number of workers that this JVM has started so far. */
  public static long starts() {
    return STARTS.get();
  }

  /**
   * Ends every worker, all at the same time; see {@link WorkerProcess#finish}. Stores that are used
   * afterwards start new ones.
   */
  public static void closeAll() {
    Map<WorkerProcess, CompletableFuture<Void>> ends = new HashMap<>();
    for (WorkerPool pool : POOLS.values()) {
      for (Worker worker : pool.workers) {
        CompletableFuture<WorkerProcess> started = worker.take();
        if (started != null && !started.isDone()) {
          started.thenAccept(WorkerProcess::close);
        } else if (started != null && !started.isCompletedExceptionally()) {
          WorkerProcess process = started.join();
          CompletableFuture<Void> end = new CompletableFuture<>();
          ends.put(process, end);
          Runnable work =
              () -> {
                try {
                  process.finish();
                } finally {
                  end.complete(null);
                }
              };
          try {
            DaemonThreads.start(DaemonThreads.of("cairn-engine-end", work));
          } catch (CairnException e) {
            work.run();
          }
        }
      }
    }
    try {
      CompletableFuture.allOf(ends.values().toArray(CompletableFuture[]::new))
          .get(WorkerProcess.END_WAIT_MS + END_MS, TimeUnit.MILLISECONDS);
    } catch (TimeoutException | ExecutionException e) {
      LOG.warn("a worker does not end, and is killed");
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    ends.forEach(
        (process, end) -> {
          if (!end.isDone()) {
            process.giveUp();
          }
        });
  }

  /**
   * Returns the worker for a group of stores; the caller later calls {@link #leave} once, when it
   * needs the worker's process no longer.
   */
  Worker join(String name) {
    if (isIdle()) {
      endIdleBeside(this, keepIdleMs);
    }
    return added(name);
  }

  private synchronized Worker added(String name) {
    Group group =
        groups.computeIfAbsent(
            name,
            added -> {
              Worker worker =
                  Collections.min(
                      List.of(workers), Comparator.comparingInt(known -> known.groupCount));
              worker.groupCount++;
              return new Group(worker);
            });
    group.memberCount++;
    return group.worker;
  }

  void leave(String name) {
    if (isIdleWithout(name)) {
      IDLE.schedule(WorkerPool::endIdle, keepIdleMs, TimeUnit.MILLISECONDS);
    }
  }

  /** Removes a member of a group; returns whether no store uses the pool from now on. */
  private synchronized boolean isIdleWithout(String name) {
    Group group = groups.get(name);
    if (group == null || --group.memberCount > 0) {
      return false;
    }
    group.worker.groupCount--;
    groups.remove(name);
    idleSinceNs = System.nanoTime();
    return groups.isEmpty();
  }

  private static final class Group {
    final Worker worker;
    int memberCount;

    Group(Worker worker) {
      this.worker = worker;
    }
  }

  /** Runs one process at a time. No lock is held while a process starts or ends. */
  final class Worker {
    private final String name;

    /** The process, or the start that is in progress; null: none. */
    private CompletableFuture<WorkerProcess> started;

    private int groupCount;

    private Worker(String name) {
      this.name = name;
    }

    /**
     * Returns the living process; starts one if there is none. A start goes on if the task of the
     * caller is cancelled: the next caller waits for the same one.
     */
    WorkerProcess process() {
      try (Cancellation cancellation = new Cancellation(Cancellation.CALL_GRACE_MS)) {
        // The start has a time limit of its own.
        return cancellation.await(starting(), Integer.MAX_VALUE, "the start of " + name);
      } catch (ExecutionException e) {
        if (e.getCause() instanceof CairnException failure) {
          throw failure;
        }
        throw new IllegalStateException("worker " + name + " did not start", e.getCause());
      } catch (TimeoutException e) {
        throw new IllegalStateException("worker " + name + " did not start in time", e);
      }
    }

    private synchronized Future<WorkerProcess> starting() {
      if (started != null && !started.isDone()) {
        return started;
      }
      WorkerProcess last =
          started == null || started.isCompletedExceptionally() ? null : started.join();
      if (last != null && last.isAlive()) {
        return started;
      }
      if (last != null) {
        LOG.warn("{} (process {}) has died; starting another", name, last.pid());
      }
      CompletableFuture<WorkerProcess> starts = new CompletableFuture<>();
      DaemonThreads.start(DaemonThreads.of("cairn-" + name + "-start", () -> start(starts, last)));
      // Not before: without a thread nothing would complete it, and every later caller would wait.
      started = starts;
      STARTS.incrementAndGet();
      return started;
    }

    private void start(CompletableFuture<WorkerProcess> starts, WorkerProcess former) {
      try {
        if (former != null) {
          former.close();
        }
        starts.complete(WorkerProcess.start(name, settings));
      } catch (Throwable e) {
        starts.completeExceptionally(e);
      }
    }

    /** Returns the process, or the start in progress, for its end; null: there is none. */
    private synchronized CompletableFuture<WorkerProcess> take() {
      CompletableFuture<WorkerProcess> last = started;
      started = null;
      return last;
    }
  }
}
