package io.cairn.spark;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.cache.CacheSession;
import io.cairn.spark.codec.RowCodec;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One version of a store as Spark reads and writes it; a read store is one that may not be written,
 * until Spark upgrades it.
 *
 * <p>One caller at a time, though not always the same thread (PySpark's transformWithState has
 * two): see {@link SessionLock}. Returned rows are reused by later calls.
 */
final class CairnStateStore implements StateStore {
  private final CairnStateStoreProvider provider;
  private final StoreSession session;
  private final CacheSession cache;
  private final Option<String> checkpointId;
  private final Scans scans;
  private final ByteSpan found = new ByteSpan();
  private volatile boolean isReadOnly;
  private String lastName;
  private StoreSession.OpenFamily lastFamily;

  CairnStateStore(
      CairnStateStoreProvider provider,
      StoreSession session,
      Option<String> checkpointId,
      boolean isReadOnly) {
    this.provider = provider;
    this.session = session;
    this.cache = session.cache;
    this.scans = new Scans(session, provider::validateOnce);
    this.checkpointId = checkpointId;
    this.isReadOnly = isReadOnly;
  }

  @Override
  public StateStoreId id() {
    return session.store.id;
  }

  @Override
  public long version() {
    return session.base.version();
  }

  @Override
  public UnsafeRow get(UnsafeRow key, String family) {
    StoreSession.OpenFamily open = enter("get", family);
    try {
      RowCodec codec = encodeKey(open, key);
      if (!cache.get(open.id(), codec.key, found)) {
        return null;
      }
      UnsafeRow value = codec.decodeValue(found);
      provider.validateOnce(key, value);
      return value;
    } finally {
      session.leave();
    }
  }

  @Override
  public boolean keyExists(UnsafeRow key, String family) {
    StoreSession.OpenFamily open = enter("keyExists", family);
    try {
      RowCodec codec = encodeKey(open, key);
      return cache.exists(open.id(), codec.key);
    } finally {
      session.leave();
    }
  }

  @Override
  public Iterator<UnsafeRow> multiGet(UnsafeRow[] keys, String family) {
    return within(
        "multiGet",
        family,
        open -> {
          RowCodec codec = open.family().codec();
          byte[][] encoded = new byte[keys.length][];
          Arrays.setAll(encoded, index -> codec.keyBytes(Requirements.key(keys[index])));
          cache.prefetch(open.id(), encoded);
          return new LockedRows(
              session,
              CollectionConverters.asScala(List.of(encoded)).iterator().map(key -> at(open, key)));
        });
  }

  /** The value of an encoded key, or null. */
  private UnsafeRow at(StoreSession.OpenFamily open, byte[] key) {
    RowCodec codec = open.family().codec();
    codec.key.set(key);
    return cache.get(open.id(), codec.key, found) ? codec.decodeValue(found) : null;
  }

  @Override
  public Iterator<UnsafeRow> valuesIterator(UnsafeRow key, String family) {
    return within(
        "valuesIterator",
        family,
        open -> {
          RowCodec codec = Requirements.multi(open, "valuesIterator");
          encodeKey(open, key);
          if (!cache.get(open.id(), codec.key, found)) {
            return scala.collection.Iterator$.MODULE$.<UnsafeRow>empty();
          }
          return new LockedRows(session, codec.decodeValues(found));
        });
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iterator(String family) {
    return within("iterator", family, open -> scans.all(open, false));
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iteratorWithMultiValues(String family) {
    return within("iteratorWithMultiValues", family, open -> scans.all(open, true));
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScan(UnsafeRow prefix, String family) {
    return within("prefixScan", family, open -> scans.prefix(open, prefix, false));
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScanWithMultiValues(
      UnsafeRow prefix, String family) {
    return within("prefixScanWithMultiValues", family, open -> scans.prefix(open, prefix, true));
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> rangeScan(
      Option<UnsafeRow> start, Option<UnsafeRow> end, String family) {
    return within("rangeScan", family, open -> scans.range(open, start, end, false));
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> rangeScanWithMultiValues(
      Option<UnsafeRow> start, Option<UnsafeRow> end, String family) {
    return within("rangeScanWithMultiValues", family, open -> scans.range(open, start, end, true));
  }

  @Override
  public void put(UnsafeRow key, UnsafeRow value, String family) {
    StoreSession.OpenFamily open = enterToWrite("put", family);
    try {
      RowCodec codec = encodeKey(open, key);
      Requirements.value("put", value);
      codec.encodeValue(value);
      cache.put(open.id(), codec.key, codec.value, codec.isPlainValue());
    } finally {
      session.leave();
    }
  }

  @Override
  public void putList(UnsafeRow key, UnsafeRow[] values, String family) {
    StoreSession.OpenFamily open = enterToWrite("putList", family);
    try {
      RowCodec codec = Requirements.multi(open, "putList");
      codec.encodeValues(Requirements.values(values));
      encodeKey(open, key);
      cache.put(open.id(), codec.key, codec.value, false);
    } finally {
      session.leave();
    }
  }

  @Override
  public void merge(UnsafeRow key, UnsafeRow value, String family) {
    Requirements.value("merge", value);
    mergeList(key, new UnsafeRow[] {value}, family);
  }

  @Override
  public void mergeList(UnsafeRow key, UnsafeRow[] values, String family) {
    StoreSession.OpenFamily open = enterToWrite("merge", family);
    try {
      RowCodec codec = Requirements.multi(open, "merge");
      codec.encodeValues(Requirements.values(values));
      encodeKey(open, key);
      cache.append(open.id(), codec.key, codec.value);
    } finally {
      session.leave();
    }
  }

  @Override
  public void remove(UnsafeRow key, String family) {
    StoreSession.OpenFamily open = enterToWrite("remove", family);
    try {
      RowCodec codec = encodeKey(open, key);
      cache.remove(open.id(), codec.key);
    } finally {
      session.leave();
    }
  }

  @Override
  public void deleteRange(UnsafeRow begin, UnsafeRow end, String family) {
    Requirements.writable(isReadOnly, "deleteRange");
    within("deleteRange", family, open -> scans.remove(open, begin, end));
  }

  @Override
  public void createColFamilyIfAbsent(
      String name,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec spec,
      boolean isMulti,
      boolean isInternal) {
    session.enter("create a column family");
    try {
      session.families.checkName("create_col_family", name, isInternal);
      lastName = null;
      session.open(
          session.families.declare(name, keySchema, valueSchema, spec, isMulti, isInternal));
    } finally {
      session.leave();
    }
  }

  @Override
  public void registerColFamily(
      String name,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec spec,
      boolean isMulti,
      boolean isInternal) {
    session.families.checkName("register_col_family", name, isInternal);
    session.families.declare(name, keySchema, valueSchema, spec, isMulti, isInternal);
  }

  @Override
  public boolean removeColFamilyIfExists(String name) {
    session.enter("remove a column family");
    try {
      Requirements.writable(isReadOnly, "remove_col_family");
      session.families.checkName("remove_col_family", name, false);
      lastName = null;
      return session.dropFamily(name);
    } finally {
      session.leave();
    }
  }

  @Override
  public scala.collection.immutable.Set<String> allColumnFamilyNames() {
    return CollectionConverters.asScala(new HashSet<>(session.present().keySet())).toSet();
  }

  @Override
  public long commit() {
    Requirements.writable(isReadOnly, "commit");
    return session.commit();
  }

  @Override
  public void abort() {
    session.abort();
  }

  @Override
  public void release() {
    if (!isReadOnly && session.state() == SessionState.OPEN) {
      throw StateStoreErrors.stateStoreOperationOutOfOrder(
          "Cannot release a store that may be written; abort it");
    }
    session.release();
  }

  @Override
  public StateStoreMetrics metrics() {
    return SessionMetrics.of(session);
  }

  @Override
  public StateStoreCheckpointInfo getStateStoreCheckpointInfo() {
    StoreVersion result = Requirements.committed(session);
    return new StateStoreCheckpointInfo(
        id().partitionId(), result.version(), Option.apply(result.checkpointId()), checkpointId);
  }

  @Override
  public boolean hasCommitted() {
    return session.state() == SessionState.COMMITTED;
  }

  /**
   * The store to write, over the same session; null if the session has ended or is at another
   * version.
   */
  CairnStateStore upgraded(long version, Option<String> id, boolean forceSnapshot) {
    if (session.state() != SessionState.OPEN || version() != version || !checkpointId.equals(id)) {
      return null;
    }
    session.forceSnapshot(forceSnapshot);
    isReadOnly = false;
    return this;
  }

  /** Lets the family's codec hold the key. */
  private static RowCodec encodeKey(StoreSession.OpenFamily open, UnsafeRow key) {
    RowCodec codec = open.family().codec();
    codec.encodeKey(Requirements.key(key));
    return codec;
  }

  private <T> T within(String operation, String family, Function<StoreSession.OpenFamily, T> call) {
    StoreSession.OpenFamily open = enter(operation, family);
    try {
      return call.apply(open);
    } finally {
      session.leave();
    }
  }

  /** Enters the session for one row call, which ends with its {@code leave}. */
  private StoreSession.OpenFamily enter(String operation, String family) {
    session.enter(operation);
    if (family.equals(lastName)) {
      return lastFamily;
    }
    try {
      lastFamily = session.family(operation, family);
      lastName = family;
      return lastFamily;
    } catch (RuntimeException | Error e) {
      session.leave();
      throw e;
    }
  }

  private StoreSession.OpenFamily enterToWrite(String operation, String family) {
    Requirements.writable(isReadOnly, operation);
    return enter(operation, family);
  }

  @Override
  public String toString() {
    return "CairnStateStore[" + id() + "] version " + version();
  }
}
