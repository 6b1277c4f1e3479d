package io.cairn.spark.session;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.cache.StateCache;
import io.cairn.spark.codec.FamilyInfo;
import io.cairn.spark.engine.EngineInstance;
import io.cairn.spark.engine.SessionChannel;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.protocol.Json;
import java.util.Collection;
import java.util.Objects;
import java.util.stream.Collectors;

/**
 * The version of a store that its cache and its engine both have, and the loads that make it so.
 *
 * <p>Changed under the store's lock; {@link #number} and {@link #trust} may be called from any
 * thread.
 */
public final class CurrentVersion {
  private final String store;
  private final EngineInstance engine;
  private final StateCache cache;

  /** Null: not known, so the next session loads. INVARIANT: changed under the lock. */
  private volatile StoreVersion version;

  /** Whether {@link #version} may be used without a checkpoint id that confirms it. */
  private volatile boolean isTrusted;

  /**
   * @param store its name, for errors
   */
  CurrentVersion(String store, EngineInstance engine, StateCache cache) {
    this.store = store;
    this.engine = engine;
    this.cache = cache;
  }

  /** Its number, or -1. */
  public long number() {
    StoreVersion now = version;
    return now == null ? -1 : now.version();
  }

  /** The version, if the cache has it still: an error may have emptied it. Null: no version. */
  StoreVersion inCache() {
    StoreVersion now = version;
    return now != null && cache.version() == now.version() ? now : null;
  }

  /** Loads a version into cache and engine, unless it is loaded already. REQUIRES: the lock. */
  public LoadedVersion load(long wanted, String checkpointId, boolean loadEmpty) {
    StoreVersion now = inCache();
    if (now != null && !loadEmpty && isAt(now, wanted, checkpointId)) {
      SessionChannel.Loaded session = new SessionChannel.Loaded(engine.nextSession(), 0);
      return new LoadedVersion(now, session, MissingNode.getInstance(), false, 0);
    }
    return load("load", arguments(wanted, checkpointId, loadEmpty));
  }

  private boolean isAt(StoreVersion now, long wanted, String checkpointId) {
    if (now.version() != wanted) {
      return false;
    }
    if (wanted == 0) {
      return true;
    }
    return checkpointId != null ? checkpointId.equals(now.checkpointId()) : isTrusted;
  }

  /**
   * Loads a version from the snapshot of an earlier one, or from what leads to that if it has no
   * snapshot, and the changelogs after it. REQUIRES: the lock.
   */
  public LoadedVersion loadSnapshot(
      long snapshotVersion, String snapshotId, long wanted, String checkpointId) {
    return load(
        "load_snapshot",
        arguments(wanted, checkpointId, false)
            .put("snapshot_version", snapshotVersion)
            .put("snapshot_checkpoint_id", snapshotId));
  }

  private LoadedVersion load(String method, ObjectNode arguments) {
    forget();
    boolean wasOpen = engine.isOpen();
    JsonNode answer = call(method, arguments);
    boolean loadEmpty = arguments.get("load_empty").asBoolean();
    StoreVersion loaded = StoreVersion.of(answer);
    prepareCache(loaded, loadEmpty);
    // A later session cannot start from a version whose content was left out. In checkpoint format
    // 1 another attempt may replace the version: only versions that this instance commits are
    // trusted.
    set(loadEmpty ? null : loaded, false);
    return new LoadedVersion(
        loaded, session(arguments, answer), answer, loadEmpty, wasOpen ? 0 : engine.takeStartMs());
  }

  /** Empties the cache unless it has the loaded version, and gives it the version's families. */
  private void prepareCache(StoreVersion loaded, boolean loadEmpty) {
    boolean isReset =
        loadEmpty
            || cache.version() != loaded.version()
            || !Objects.equals(cache.checkpointId(), loaded.checkpointId());
    if (isReset) {
      cache.reset(loaded.version(), loaded.checkpointId(), loadEmpty || loaded.version() == 0);
    }
    Collection<FamilyInfo> families = loaded.families().values();
    cache.keepFamilies(families.stream().map(FamilyInfo::id).collect(Collectors.toSet()));
    for (FamilyInfo family : families) {
      cache.defineFamily(family.id(), family.isOrdered(), family.isMulti());
    }
  }

  /**
   * Loads the version of a session under a new id, in the worker that now serves the instance.
   * REQUIRES: the lock.
   */
  SessionChannel.Loaded reload(LoadedVersion loaded) {
    StoreVersion wanted = loaded.version();
    ObjectNode arguments =
        arguments(wanted.version(), wanted.checkpointId(), loaded.isLoadedEmpty());
    JsonNode answer = call("load", arguments);
    if (!Objects.equals(StoreVersion.of(answer).checkpointId(), wanted.checkpointId())) {
      throw CairnException.of(
              ErrorKind.CONFLICT,
              "CAIRN_FENCED",
              "another attempt replaced the version of this session after its worker was lost",
              "none if another task of the query continues")
          .at(store, wanted.version());
    }
    return session(arguments, answer);
  }

  private ObjectNode arguments(long wanted, String checkpointId, boolean loadEmpty) {
    return Json.object()
        .put("session", engine.nextSession())
        .put("version", wanted)
        .put("checkpoint_id", checkpointId)
        .put("load_empty", loadEmpty);
  }

  private JsonNode call(String method, ObjectNode arguments) {
    RunningLoads.Load running = RunningLoads.begin();
    try {
      return engine.callWithRetry(method, arguments);
    } finally {
      running.close();
    }
  }

  private static SessionChannel.Loaded session(ObjectNode arguments, JsonNode answer) {
    return new SessionChannel.Loaded(
        arguments.get("session").asLong(), answer.path("applied_through").asLong());
  }

  /** Sets the version after a commit; {@code trusted} once its task has succeeded. */
  void committed(StoreVersion newVersion, boolean trusted) {
    set(newVersion, trusted);
  }

  /** Trusts a committed version, because its task has succeeded. */
  void trust(StoreVersion committed) {
    if (version == committed) {
      isTrusted = true;
    }
  }

  /** Forgets the version after an error, or a commit of unknown outcome: the next session loads. */
  void forget() {
    set(null, false);
  }

  private void set(StoreVersion newVersion, boolean trusted) {
    version = newVersion;
    isTrusted = trusted;
  }
}
