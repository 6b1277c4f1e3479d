package io.cairn.spark;

import io.cairn.spark.codec.ByteOrder;
import io.cairn.spark.codec.RowCodec;
import io.cairn.spark.tier.TierCursor;
import io.cairn.spark.tier.TierSession;
import io.cairn.spark.tier.ValueRef;
import java.lang.invoke.VarHandle;
import java.util.HashSet;
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
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One version of a store as Spark reads and writes it; a read store is one that may not be written,
 * until Spark upgrades it.
 *
 * <p>One caller at a time, though not always the same thread (PySpark's transformWithState has
 * two). Returned rows are reused by later calls.
 */
final class CairnStateStore implements StateStore {
  private static final long BYTES = Platform.BYTE_ARRAY_OFFSET;

  private final CairnStateStoreProvider provider;
  private final StoreSession session;
  private final TierSession tier;
  private final Option<String> checkpointId;
  private final ValueRef found = new ValueRef();
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
    this.tier = session.tier;
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
    RowCodec codec = open.family().codec();
    Requirements.key(key);
    codec.encodeKey(key);
    if (!tier.get(open.id(), codec.keyBase, codec.keyOffset, codec.keyLength, found)) {
      return null;
    }
    UnsafeRow value = codec.decodeValue(found.base, found.offset, found.length);
    provider.validateOnce(key, value);
    VarHandle.releaseFence();
    return value;
  }

  @Override
  public boolean keyExists(UnsafeRow key, String family) {
    StoreSession.OpenFamily open = enter("keyExists", family);
    Requirements.key(key);
    RowCodec codec = open.family().codec();
    codec.encodeKey(key);
    boolean exists = tier.exists(open.id(), codec.keyBase, codec.keyOffset, codec.keyLength);
    VarHandle.releaseFence();
    return exists;
  }

  @Override
  public Iterator<UnsafeRow> multiGet(UnsafeRow[] keys, String family) {
    StoreSession.OpenFamily open = enter("multiGet", family);
    byte[][] encoded = new byte[keys.length][];
    for (int index = 0; index < keys.length; index++) {
      Requirements.key(keys[index]);
      encoded[index] = open.family().codec().keyBytes(keys[index]);
    }
    tier.getMany(open.id(), encoded, encoded.length);
    return new AbstractIterator<>() {
      private int next;

      @Override
      public boolean hasNext() {
        return next < encoded.length;
      }

      @Override
      public UnsafeRow next() {
        byte[] key = encoded[next++];
        RowCodec codec = open.family().codec();
        return tier.get(open.id(), key, BYTES, key.length, found)
            ? codec.decodeValue(found.base, found.offset, found.length)
            : null;
      }
    };
  }

  @Override
  public Iterator<UnsafeRow> valuesIterator(UnsafeRow key, String family) {
    StoreSession.OpenFamily open = enter("valuesIterator", family);
    Requirements.key(key);
    RowCodec codec = Requirements.multi(open, "valuesIterator");
    codec.encodeKey(key);
    if (!tier.get(open.id(), codec.keyBase, codec.keyOffset, codec.keyLength, found)) {
      return scala.collection.Iterator$.MODULE$.<UnsafeRow>empty();
    }
    return codec.decodeValues(found.base, found.offset, found.length);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iterator(String family) {
    return pairs(enter("iterator", family), null, null, false);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iteratorWithMultiValues(String family) {
    return pairs(enter("iteratorWithMultiValues", family), null, null, true);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScan(UnsafeRow prefix, String family) {
    return prefixPairs(prefix, "prefixScan", family, false);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScanWithMultiValues(
      UnsafeRow prefix, String family) {
    return prefixPairs(prefix, "prefixScanWithMultiValues", family, true);
  }

  private StateStoreIterator<UnsafeRowPair> prefixPairs(
      UnsafeRow prefix, String operation, String family, boolean isEachValue) {
    StoreSession.OpenFamily open = enter(operation, family);
    RowCodec codec = open.family().codec();
    Requirements.prefixScan(codec);
    byte[] from = codec.prefixBytes(prefix);
    return pairs(open, from, ByteOrder.successor(from), isEachValue);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> rangeScan(
      Option<UnsafeRow> start, Option<UnsafeRow> end, String family) {
    return rangePairs(start, end, "rangeScan", family, false);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> rangeScanWithMultiValues(
      Option<UnsafeRow> start, Option<UnsafeRow> end, String family) {
    return rangePairs(start, end, "rangeScanWithMultiValues", family, true);
  }

  private StateStoreIterator<UnsafeRowPair> rangePairs(
      Option<UnsafeRow> start,
      Option<UnsafeRow> end,
      String operation,
      String family,
      boolean isEachValue) {
    StoreSession.OpenFamily open = enter(operation, family);
    RowCodec codec = open.family().codec();
    Requirements.rangeScan(codec, family);
    byte[] from = start.isEmpty() ? new byte[0] : codec.keyBytes(start.get());
    byte[] to = end.isEmpty() ? null : codec.keyBytes(end.get());
    return pairs(open, from, to, isEachValue);
  }

  private StateStoreIterator<UnsafeRowPair> pairs(
      StoreSession.OpenFamily open, byte[] from, byte[] to, boolean isEachValue) {
    TierCursor cursor = from == null ? tier.scan(open.id()) : tier.range(open.id(), from, to);
    return PairIterator.of(cursor, open.family().codec(), isEachValue, provider::validateOnce);
  }

  @Override
  public void put(UnsafeRow key, UnsafeRow value, String family) {
    StoreSession.OpenFamily open = enterToWrite("put", family);
    Requirements.key(key);
    Requirements.value("put", value);
    RowCodec codec = open.family().codec();
    codec.encodeKey(key);
    if (codec.isPlainValue()) {
      tier.put(
          open.id(),
          codec.keyBase,
          codec.keyOffset,
          codec.keyLength,
          value.getBaseObject(),
          value.getBaseOffset(),
          value.getSizeInBytes(),
          true);
    } else {
      putEncoded(open, codec.valueBytes(value));
    }
    VarHandle.releaseFence();
  }

  @Override
  public void putList(UnsafeRow key, UnsafeRow[] values, String family) {
    StoreSession.OpenFamily open = enterToWrite("putList", family);
    Requirements.key(key);
    RowCodec codec = Requirements.multi(open, "putList");
    byte[] encoded = codec.valueBytes(Requirements.values(values));
    codec.encodeKey(key);
    putEncoded(open, encoded);
    VarHandle.releaseFence();
  }

  /** REQUIRES: the family's codec holds the key. */
  private void putEncoded(StoreSession.OpenFamily open, byte[] value) {
    RowCodec codec = open.family().codec();
    tier.put(
        open.id(),
        codec.keyBase,
        codec.keyOffset,
        codec.keyLength,
        value,
        BYTES,
        value.length,
        false);
  }

  @Override
  public void merge(UnsafeRow key, UnsafeRow value, String family) {
    Requirements.value("merge", value);
    mergeList(key, new UnsafeRow[] {value}, family);
  }

  @Override
  public void mergeList(UnsafeRow key, UnsafeRow[] values, String family) {
    StoreSession.OpenFamily open = enterToWrite("merge", family);
    Requirements.key(key);
    RowCodec codec = Requirements.multi(open, "merge");
    byte[] encoded = codec.valueBytes(Requirements.values(values));
    codec.encodeKey(key);
    tier.append(
        open.id(), codec.keyBase, codec.keyOffset, codec.keyLength, encoded, BYTES, encoded.length);
    VarHandle.releaseFence();
  }

  @Override
  public void remove(UnsafeRow key, String family) {
    StoreSession.OpenFamily open = enterToWrite("remove", family);
    Requirements.key(key);
    RowCodec codec = open.family().codec();
    codec.encodeKey(key);
    tier.remove(open.id(), codec.keyBase, codec.keyOffset, codec.keyLength);
    VarHandle.releaseFence();
  }

  @Override
  public void deleteRange(UnsafeRow begin, UnsafeRow end, String family) {
    StoreSession.OpenFamily open = enterToWrite("deleteRange", family);
    RowCodec codec = open.family().codec();
    Requirements.deleteRange(codec, family);
    try (TierCursor cursor = tier.range(open.id(), codec.keyBytes(begin), codec.keyBytes(end))) {
      while (cursor.next()) {
        tier.remove(open.id(), cursor.keyBase, cursor.keyOffset, cursor.keyLength);
      }
    }
    VarHandle.releaseFence();
  }

  @Override
  public void createColFamilyIfAbsent(
      String name,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec spec,
      boolean isMulti,
      boolean isInternal) {
    session.state().requireOpen("create a column family");
    session.families.checkName("create_col_family", name, isInternal);
    lastName = null;
    session.open(session.families.declare(name, keySchema, valueSchema, spec, isMulti, isInternal));
    VarHandle.releaseFence();
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
    session.state().requireOpen("remove a column family");
    Requirements.writable(isReadOnly, "remove_col_family");
    session.families.checkName("remove_col_family", name, false);
    lastName = null;
    return session.dropFamily(name);
  }

  @Override
  public scala.collection.immutable.Set<String> allColumnFamilyNames() {
    return CollectionConverters.asScala(new HashSet<>(session.present().keySet())).toSet();
  }

  @Override
  public long commit() {
    VarHandle.acquireFence();
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
    VersionState result = Requirements.committed(session);
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

  private StoreSession.OpenFamily enter(String operation, String family) {
    VarHandle.acquireFence();
    session.state().requireOpen(operation);
    if (family.equals(lastName)) {
      return lastFamily;
    }
    StoreSession.OpenFamily open = session.family(operation, family);
    lastFamily = open;
    lastName = family;
    return open;
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
