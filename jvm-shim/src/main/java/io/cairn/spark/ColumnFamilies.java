package io.cairn.spark;

import io.cairn.spark.codec.ColumnFamily;
import io.cairn.spark.codec.RowCodec;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateRowEncoderCacheKey;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * Column families as a provider was told of them, for all its sessions: a declaration outlives the
 * session in which it was made.
 */
final class ColumnFamilies {
  static final String DEFAULT = "default";

  private final StoreInstance store;
  private final boolean isUsingFamilies;
  private final Option<StateSchemaProvider> schemas;
  private final ConcurrentHashMap<String, ColumnFamily> declared = new ConcurrentHashMap<>();

  ColumnFamilies(
      StoreInstance store, boolean isUsingFamilies, Option<StateSchemaProvider> schemas) {
    this.store = store;
    this.isUsingFamilies = isUsingFamilies;
    this.schemas = schemas;
  }

  boolean isUsingFamilies() {
    return isUsingFamilies;
  }

  /** The declaration, or null. */
  ColumnFamily get(String name) {
    return declared.get(name);
  }

  /**
   * Takes a declaration; the same one again costs a comparison, as Spark declares every family in
   * every task.
   */
  ColumnFamily declare(
      String name,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec spec,
      boolean isMulti,
      boolean isInternal) {
    ColumnFamily known = declared.get(name);
    if (known != null && known.isAs(keySchema, valueSchema, spec, isMulti, isInternal)) {
      return known;
    }
    StateRowEncoderCacheKey cacheKey =
        new StateRowEncoderCacheKey(
            store.runId, store.id.operatorId(), store.id.partitionId(), store.id.storeName(), name);
    RowCodec codec =
        new RowCodec(
            store.storeConf.stateStoreEncodingFormat(),
            cacheKey,
            spec,
            valueSchema,
            schemas,
            isUsingFamilies,
            isMulti);
    ColumnFamily family =
        new ColumnFamily(name, keySchema, valueSchema, spec, isMulti, isInternal, codec);
    declared.put(name, family);
    return family;
  }

  /** Forgets a declaration, its family having been removed. */
  void forget(String name) {
    declared.remove(name);
  }

  /** Refuses names that Spark refuses. */
  void checkName(String operation, String name, boolean isInternal) {
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
