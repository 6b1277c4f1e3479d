package io.cairn.bench;

import java.util.function.LongConsumer;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Set;
import scala.collection.immutable.Set$;

/** One version of a store that is always empty; see {@link NothingStateStoreProvider}. */
final class NothingStateStore implements StateStore {
  private final StateStoreId id;
  private final long version;
  private final LongConsumer onCommit;
  private boolean isCommitted;

  /**
   * Creates a store.
   *
   * @param onCommit receives the committed version
   */
  NothingStateStore(StateStoreId id, long version, LongConsumer onCommit) {
    this.id = id;
    this.version = version;
    this.onCommit = onCommit;
  }

  @Override
  public StateStoreId id() {
    return id;
  }

  @Override
  public long version() {
    return version;
  }

  @Override
  public UnsafeRow get(UnsafeRow key, String family) {
    return null;
  }

  @Override
  public Iterator<UnsafeRow> valuesIterator(UnsafeRow key, String family) {
    return scala.collection.Iterator$.MODULE$.empty();
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScan(UnsafeRow prefix, String family) {
    return none();
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScanWithMultiValues(
      UnsafeRow prefix, String family) {
    return none();
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iterator(String family) {
    return none();
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iteratorWithMultiValues(String family) {
    return none();
  }

  private static StateStoreIterator<UnsafeRowPair> none() {
    return new StateStoreIterator<>(
        scala.collection.Iterator$.MODULE$.<UnsafeRowPair>empty(),
        StateStoreIterator.$lessinit$greater$default$2());
  }

  @Override
  public void put(UnsafeRow key, UnsafeRow value, String family) {
    // Dropped, as all writes.
  }

  @Override
  public void putList(UnsafeRow key, UnsafeRow[] values, String family) {}

  @Override
  public void merge(UnsafeRow key, UnsafeRow value, String family) {}

  @Override
  public void mergeList(UnsafeRow key, UnsafeRow[] values, String family) {}

  @Override
  public void remove(UnsafeRow key, String family) {}

  @Override
  public void createColFamilyIfAbsent(
      String name,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec spec,
      boolean useMultipleValuesPerKey,
      boolean isInternal) {}

  @Override
  public boolean removeColFamilyIfExists(String name) {
    return false;
  }

  @Override
  public Set<String> allColumnFamilyNames() {
    return Set$.MODULE$.empty();
  }

  @Override
  public long commit() {
    isCommitted = true;
    onCommit.accept(version + 1);
    return version + 1;
  }

  @Override
  public void abort() {}

  @Override
  public void release() {}

  @Override
  public StateStoreMetrics metrics() {
    return new StateStoreMetrics(0, 0, Map$.MODULE$.empty(), Map$.MODULE$.empty());
  }

  @Override
  public StateStoreCheckpointInfo getStateStoreCheckpointInfo() {
    throw new UnsupportedOperationException("the store that stores nothing has no checkpoint ids");
  }

  @Override
  public boolean hasCommitted() {
    return isCommitted;
  }
}
