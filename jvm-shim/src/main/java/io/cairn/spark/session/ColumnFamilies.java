package io.cairn.spark.session;

import io.cairn.spark.codec.ColumnFamily;
import io.cairn.spark.codec.FamilySpec;
import io.cairn.spark.codec.RowChecksums;
import io.cairn.spark.codec.RowCodec;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.execution.streaming.state.StateRowEncoderCacheKey;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors;
import scala.Option;

/** The column families that Spark declared to a provider, for all its sessions. */
public final class ColumnFamilies {
  public static final String DEFAULT = "default";

  private final StoreInstance store;
  private final boolean isUsingFamilies;
  private final Option<StateSchemaProvider> schemas;
  private final ConcurrentHashMap<String, ColumnFamily> declared = new ConcurrentHashMap<>();
  private final Set<String> registered = ConcurrentHashMap.newKeySet();

  public ColumnFamilies(
      StoreInstance store, boolean isUsingFamilies, Option<StateSchemaProvider> schemas) {
    this.store = store;
    this.isUsingFamilies = isUsingFamilies;
    this.schemas = schemas;
  }

  /** Returns the family, or null if it is not declared. */
  public ColumnFamily get(String name) {
    return declared.get(name);
  }

  /**
   * Adds a declaration for reads: to these a version without the family has an empty one. Spark's
   * state reader registers each family of the schema, and no writer need have created it.
   */
  public void register(FamilySpec spec) {
    declare(spec);
    registered.add(spec.name());
  }

  /** Whether the family was registered for reads. */
  boolean isRegistered(String name) {
    return registered.contains(name);
  }

  /** Adds a declaration. Spark repeats it in every task; a repetition costs one comparison. */
  public ColumnFamily declare(FamilySpec spec) {
    ColumnFamily known = declared.get(spec.name());
    if (known != null && known.spec().equals(spec)) {
      return known;
    }
    StateRowEncoderCacheKey cacheKey =
        new StateRowEncoderCacheKey(
            store.runId,
            store.id.operatorId(),
            store.id.partitionId(),
            store.id.storeName(),
            spec.name());
    RowCodec codec =
        new RowCodec(
            store.storeConf.stateStoreEncodingFormat(),
            cacheKey,
            spec,
            schemas,
            isUsingFamilies,
            RowChecksums.of(store.storeConf, store.name, store.current::number));
    ColumnFamily family = new ColumnFamily(spec, codec);
    declared.put(spec.name(), family);
    return family;
  }

  /** Removes the declaration of a family that was dropped. */
  void forget(String name) {
    declared.remove(name);
    registered.remove(name);
  }

  /** Refuses the names that Spark refuses. */
  public void checkName(String operation, String name, boolean isInternal) {
    if (!isUsingFamilies) {
      throw StateStoreErrors.unsupportedOperationException(
          operation, "multiple column families is disabled in the provider of store " + store.name);
    }
    if (name.isEmpty() || !name.trim().equals(name) || name.equals(DEFAULT) && !isInternal) {
      throw StateStoreErrors.cannotUseColumnFamilyWithInvalidName(operation, name);
    }
    if (!isInternal && name.charAt(0) == '$') {
      throw StateStoreErrors.cannotCreateColumnFamilyWithReservedChars(name);
    }
  }
}
