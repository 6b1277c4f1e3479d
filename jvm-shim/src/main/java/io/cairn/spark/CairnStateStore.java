package io.cairn.spark;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.CacheSession;
import io.cairn.spark.cache.RowCursor;
import io.cairn.spark.codec.FamilySpec;
import io.cairn.spark.codec.RowCodec;
import io.cairn.spark.minor.MinorStore;
import io.cairn.spark.protocol.WriteBlock;
import io.cairn.spark.session.StoreSession;
import io.cairn.spark.session.StoreSession.OpenFamily;
import io.cairn.spark.session.StoreVersion;
import java.util.Arrays;
import java.util.List;
import java.util.function.BiConsumer;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.StateStoreOperationOutOfOrder;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One version of a store as Spark reads and writes it: checks arguments, encodes rows, and reads
 * and writes them in the cache. A read store refuses writes until Spark upgrades it.
 *
 * <p>Each call holds the lock of the session's row calls, because PySpark's transformWithState uses
 * two threads. Later calls reuse the returned rows.
 */
final class CairnStateStore implements MinorStore {
  final StoreSession session;
  private final CacheSession cache;
  private final Option<String> checkpointId;
  private final BiConsumer<UnsafeRow, UnsafeRow> validate;
  private final ByteSpan found = new ByteSpan();
  private volatile boolean isReadOnly;
  private String lastName;
  private OpenFamily lastFamily;

  /**
   * @param validate receives each pair before Spark does
   */
  CairnStateStore(
      StoreSession session,
      Option<String> checkpointId,
      boolean isReadOnly,
      BiConsumer<UnsafeRow, UnsafeRow> validate) {
    this.session = session;
    this.cache = session.cache;
    this.checkpointId = checkpointId;
    this.isReadOnly = isReadOnly;
    this.validate = validate;
  }

  @Override
  public StateStoreId id() {
    return session.store.id;
  }

  @Override
  public long version() {
    return session.baseVersion.version();
  }

  @Override
  public UnsafeRow get(UnsafeRow key, String family) {
    OpenFamily open = enter("get", family);
    try {
      RowCodec codec = encodeKey(open, key);
      if (!cache.get(open.id(), codec.key, found)) {
        return null;
      }
      UnsafeRow value = codec.decodeValue(codec.key, found);
      validate.accept(key, value);
      return value;
    } finally {
      session.leave();
    }
  }

  @Override
  public boolean keyExists(UnsafeRow key, String family) {
    OpenFamily open = enter("keyExists", family);
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
          Arrays.setAll(encoded, index -> codec.keyBytes(requireKey(keys[index])));
          cache.prefetch(open.id(), encoded);
          return new LockedRows(
              session,
              CollectionConverters.asScala(List.of(encoded)).iterator().map(key -> at(open, key)));
        });
  }

  /** The value of an encoded key, or null. */
  private UnsafeRow at(OpenFamily open, byte[] key) {
    RowCodec codec = open.family().codec();
    codec.key.set(key);
    return cache.get(open.id(), codec.key, found) ? codec.decodeValue(codec.key, found) : null;
  }

  @Override
  public Iterator<UnsafeRow> valuesIterator(UnsafeRow key, String family) {
    return within(
        "valuesIterator",
        family,
        open -> {
          RowCodec codec = requireMulti(open, "valuesIterator");
          encodeKey(open, key);
          if (!cache.get(open.id(), codec.key, found)) {
            return scala.collection.Iterator$.MODULE$.<UnsafeRow>empty();
          }
          return new LockedRows(session, codec.decodeValues(codec.key, found));
        });
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iterator(String family) {
    return within("iterator", family, open -> pairs(open, all(open), false));
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iteratorWithMultiValues(String family) {
    return within("iteratorWithMultiValues", family, open -> pairs(open, all(open), true));
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScan(UnsafeRow prefix, String family) {
    return within("prefixScan", family, open -> pairs(open, cursor(open, prefix), false));
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScanWithMultiValues(
      UnsafeRow prefix, String family) {
    return within(
        "prefixScanWithMultiValues", family, open -> pairs(open, cursor(open, prefix), true));
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> rangeScan(
      Option<UnsafeRow> start, Option<UnsafeRow> end, String family) {
    return within("rangeScan", family, open -> pairs(open, cursor(open, start, end), false));
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> rangeScanWithMultiValues(
      Option<UnsafeRow> start, Option<UnsafeRow> end, String family) {
    return within(
        "rangeScanWithMultiValues", family, open -> pairs(open, cursor(open, start, end), true));
  }

  /** All rows; in key order if the keys have range scans, as with Spark's provider. */
  private RowCursor all(OpenFamily open) {
    return open.family().codec().supportsRangeScan()
        ? cache.range(open.id(), new byte[0], null)
        : cache.scan(open.id());
  }

  private RowCursor cursor(OpenFamily open, UnsafeRow prefix) {
    RowCodec codec = open.family().codec();
    require(codec.supportsPrefixScan(), "Prefix scan requires setting prefix key!");
    byte[] from = codec.prefixBytes(prefix);
    return cache.range(open.id(), from, Bytes.successor(from));
  }

  private RowCursor cursor(OpenFamily open, Option<UnsafeRow> start, Option<UnsafeRow> end) {
    RowCodec codec = open.family().codec();
    if (!codec.supportsRangeScan()) {
      require(
          false,
          "Range scan requires a range-scan encoder for column family: " + open.family().name());
    }
    byte[] from = start.isEmpty() ? new byte[0] : codec.keyBytes(start.get());
    byte[] to = end.isEmpty() ? null : codec.keyBytes(end.get());
    return cache.range(open.id(), from, to);
  }

  private StateStoreIterator<UnsafeRowPair> pairs(
      OpenFamily open, RowCursor cursor, boolean isEachValue) {
    return RowPairIterator.of(session, cursor, open.family().codec(), isEachValue, validate);
  }

  @Override
  public void put(UnsafeRow key, UnsafeRow value, String family) {
    OpenFamily open = enterToWrite("put", family);
    try {
      RowCodec codec = encodeKey(open, key);
      requireValue("put", value);
      codec.encodeValue(value);
      cache.put(open.id(), codec.key, codec.value, codec.isPlainValue());
    } finally {
      session.leave();
    }
  }

  @Override
  public void putList(UnsafeRow key, UnsafeRow[] values, String family) {
    OpenFamily open = enterToWrite("putList", family);
    try {
      RowCodec codec = requireMulti(open, "putList");
      requireValues(values);
      encodeKey(open, key);
      encodeValues(codec, values);
      cache.put(open.id(), codec.key, codec.value, false);
    } finally {
      session.leave();
    }
  }

  @Override
  public void merge(UnsafeRow key, UnsafeRow value, String family) {
    requireValue("merge", value);
    mergeList(key, new UnsafeRow[] {value}, family);
  }

  @Override
  public void mergeList(UnsafeRow key, UnsafeRow[] values, String family) {
    OpenFamily open = enterToWrite("merge", family);
    try {
      RowCodec codec = requireMulti(open, "merge");
      requireValues(values);
      encodeKey(open, key);
      encodeValues(codec, values);
      cache.append(open.id(), codec.key, codec.value);
    } finally {
      session.leave();
    }
  }

  private void encodeValues(RowCodec codec, UnsafeRow[] values) {
    long bytes = codec.encodeValues(values, WriteBlock.MAX_ROW_BYTES);
    if (bytes > WriteBlock.MAX_ROW_BYTES) {
      throw session.channel.rowTooLarge(bytes);
    }
  }

  @Override
  public void remove(UnsafeRow key, String family) {
    OpenFamily open = enterToWrite("remove", family);
    try {
      RowCodec codec = encodeKey(open, key);
      cache.remove(open.id(), codec.key);
    } finally {
      session.leave();
    }
  }

  @Override
  public void deleteRange(UnsafeRow begin, UnsafeRow end, String family) {
    requireWritable("deleteRange");
    OpenFamily open = enter("deleteRange", family);
    try {
      RowCodec codec = open.family().codec();
      require(
          codec.supportsDeleteRange(),
          "deleteRange requires a RangeKeyScanStateEncoderSpec for column family " + family);
      byte[] from = codec.keyBytes(begin);
      try (RowCursor cursor = cache.range(open.id(), from, codec.keyBytes(end))) {
        while (cursor.next()) {
          cache.remove(open.id(), cursor.key);
        }
      }
    } finally {
      session.leave();
    }
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
          session.families.declare(
              new FamilySpec(name, keySchema, valueSchema, spec, isMulti, isInternal)));
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
    session.families.register(
        new FamilySpec(name, keySchema, valueSchema, spec, isMulti, isInternal));
  }

  @Override
  public boolean removeColFamilyIfExists(String name) {
    session.enter("remove a column family");
    try {
      requireWritable("remove_col_family");
      session.families.checkName("remove_col_family", name, false);
      lastName = null;
      return session.dropFamily(name);
    } finally {
      session.leave();
    }
  }

  @Override
  public scala.collection.immutable.Set<String> allColumnFamilyNames() {
    return CollectionConverters.asScala(session.familyNames()).toSet();
  }

  @Override
  public long commit() {
    requireWritable("commit");
    try {
      session.commit();
      if (session.store.storeConf.commitValidationEnabled()) {
        // Throws what is fatal to the task, such as an interrupt, undeclared.
        StateStore.reportCommitToCoordinator(version() + 1, id(), session.store.runConf);
      }
    } catch (StateStoreOperationOutOfOrder e) {
      throw e;
    } catch (Throwable e) {
      throw SparkErrors.cannotCommit("CairnStateStore[" + id() + "] version " + (version() + 1), e);
    }
    return version() + 1;
  }

  @Override
  public void abort() {
    session.abort();
  }

  @Override
  public void release() {
    if (!isReadOnly && session.isOpen()) {
      throw StateStoreErrors.stateStoreOperationOutOfOrder(
          "Cannot release a store that may be written; abort it");
    }
    session.release();
  }

  @Override
  public StateStoreMetrics metrics() {
    return StoreMetrics.of(session);
  }

  @Override
  public StateStoreCheckpointInfo getStateStoreCheckpointInfo() {
    if (!session.isCommitted()) {
      throw StateStoreErrors.stateStoreOperationOutOfOrder(
          "Cannot return the checkpoint id of a store that was not committed");
    }
    StoreVersion result = session.result();
    // In format 1 Spark knows no ids, and refuses to load by one.
    Option<String> ofResult =
        session.hasCheckpointIds() ? Option.apply(result.checkpointId()) : Option.empty();
    return new StateStoreCheckpointInfo(
        id().partitionId(), result.version(), ofResult, checkpointId);
  }

  @Override
  public boolean hasCommitted() {
    return session.isCommitted();
  }

  /** The store for writes in the same session; null if that has ended or has another version. */
  CairnStateStore upgraded(long version, Option<String> id, boolean forceSnapshot) {
    if (!session.isOpen() || version() != version || !checkpointId.equals(id)) {
      return null;
    }
    session.forceSnapshot(forceSnapshot);
    isReadOnly = false;
    return this;
  }

  /** Encodes the key into the family's codec. */
  private static RowCodec encodeKey(OpenFamily open, UnsafeRow key) {
    RowCodec codec = open.family().codec();
    codec.encodeKey(requireKey(key));
    return codec;
  }

  private <T> T within(String operation, String family, Function<OpenFamily, T> call) {
    OpenFamily open = enter(operation, family);
    try {
      return call.apply(open);
    } finally {
      session.leave();
    }
  }

  /** Enters the session for one row call, which ends with its {@code leave}. */
  private OpenFamily enter(String operation, String family) {
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

  private OpenFamily enterToWrite(String operation, String family) {
    requireWritable(operation);
    return enter(operation, family);
  }

  // The requirements of a call; the errors have the texts of Spark's own providers.

  private void requireWritable(String operation) {
    if (isReadOnly) {
      throw StateStoreErrors.stateStoreOperationOutOfOrder(
          "Cannot " + operation + " on a store opened to read");
    }
  }

  private static void require(boolean isMet, String requirement) {
    if (!isMet) {
      throw new IllegalArgumentException("requirement failed: " + requirement);
    }
  }

  private static UnsafeRow requireKey(UnsafeRow key) {
    require(key != null, "Key cannot be null");
    return key;
  }

  private static void requireValue(String operation, UnsafeRow value) {
    if (value == null) {
      require(false, "Cannot " + operation + " a null value");
    }
  }

  private static void requireValues(UnsafeRow[] values) {
    require(values != null && values.length > 0, "Cannot put an empty list");
    for (UnsafeRow value : values) {
      requireValue("put", value);
    }
  }

  /** The codec of a family that has lists. */
  private static RowCodec requireMulti(OpenFamily open, String operation) {
    RowCodec codec = open.family().codec();
    if (!codec.supportsManyValues()) {
      throw new IllegalStateException(
          operation
              + " needs a column family with multiple values per key, but "
              + open.family().name()
              + " has one");
    }
    return codec;
  }

  @Override
  public String toString() {
    return "CairnStateStore[" + id() + "] version " + version();
  }
}
