package io.cairn.spark.session;

import com.fasterxml.jackson.databind.JsonNode;
import io.cairn.spark.codec.ColumnFamily;
import io.cairn.spark.codec.FamilyInfo;
import io.cairn.spark.engine.SessionChannel;
import io.cairn.spark.protocol.ChangePage;
import io.cairn.spark.protocol.Json;
import java.util.List;
import java.util.stream.StreamSupport;
import org.apache.spark.TaskContext;
import org.apache.spark.util.TaskCompletionListener;

/**
 * A store that is open to read the changelogs of some versions. No version is loaded: what a
 * version has besides its changes may not even fit on this machine.
 *
 * <p>It holds the store's lock, and ends at the latest with the task that opened it. Its methods
 * exclude each other: the end of a cancelled task does not wait for the thread that reads.
 */
public final class ChangeSession implements AutoCloseable {
  /** A version that has changes. */
  public record Version(long number, String checkpointId) {}

  public final StoreInstance store;

  /** In ascending order; empty commits are left out. */
  public final List<Version> versions;

  /** The last version of the range. */
  private final StoreVersion end;

  private final SessionChannel channel;
  private boolean isClosed;

  /**
   * Acquires the store's lock and finds the versions.
   *
   * @param endId Spark's id of the last version; null in checkpoint format 1
   */
  public static ChangeSession open(
      StoreInstance store, long startVersion, long endVersion, String endId) {
    store.lock.acquire();
    ChangeSession session = null;
    try {
      session = new ChangeSession(store, startVersion, endVersion, endId);
    } finally {
      if (session == null) {
        store.lock.release();
      }
    }
    TaskContext task = TaskContext.get();
    if (task != null) {
      ChangeSession opened = session;
      task.addTaskCompletionListener((TaskCompletionListener) ended -> opened.close());
    }
    return session;
  }

  private ChangeSession(StoreInstance store, long startVersion, long endVersion, String endId) {
    this.store = store;
    JsonNode answer = changes(startVersion, endVersion, endId);
    end = StoreVersion.of(answer);
    versions =
        StreamSupport.stream(answer.get("versions").spliterator(), false)
            .map(one -> new Version(one.get(0).asLong(), one.get(1).asText()))
            .toList();
    channel =
        new SessionChannel(
            store.engine,
            endVersion,
            newSession(),
            () -> {
              // The new worker protects the changelogs from now on.
              changes(startVersion, endVersion, endId);
              return newSession();
            });
  }

  /** The versions of the range that have changes, and what the last one has. */
  private JsonNode changes(long startVersion, long endVersion, String endId) {
    // The worker that answers may be another one, which has no version loaded.
    store.current.forget();
    return store.engine.callWithRetry(
        "changes",
        Json.object()
            .put("start_version", startVersion)
            .put("end_version", endVersion)
            .put("end_checkpoint_id", endId));
  }

  private SessionChannel.Loaded newSession() {
    return new SessionChannel.Loaded(store.engine.nextSession(), 0);
  }

  /**
   * Returns the id of a family in these versions; -1: the last one does not have it. Refuses a
   * declaration with which its rows would be misread.
   */
  public int idOf(ColumnFamily family) {
    FamilyInfo stored = end.families().get(family.name());
    if (stored == null) {
      return -1;
    }
    FamilyCheck.requireReadable(
        store.name, end, stored, family.info(stored.id()), end.families().size() == 1);
    return stored.id();
  }

  /** Reads a page of one version's changes. */
  public synchronized ChangePage page(Version version, long fromRow, int limitRows) {
    if (isClosed) {
      throw new IllegalStateException("[CAIRN_INTERNAL] a read of changes after its end");
    }
    return channel.changes(version.number, version.checkpointId, fromRow, limitRows);
  }

  /** Releases the store. Idempotent. */
  @Override
  public synchronized void close() {
    if (!isClosed) {
      isClosed = true;
      try {
        channel.close();
      } finally {
        store.lock.release();
      }
    }
  }
}
