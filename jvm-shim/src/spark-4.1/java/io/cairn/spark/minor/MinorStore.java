package io.cairn.spark.minor;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Iterator;

/** A store, with the methods of the newest minor. This Spark does not call those declared here. */
public interface MinorStore extends StateStore {
  boolean keyExists(UnsafeRow key, String family);

  Iterator<UnsafeRow> multiGet(UnsafeRow[] keys, String family);

  StateStoreIterator<UnsafeRowPair> iteratorWithMultiValues(String family);

  StateStoreIterator<UnsafeRowPair> prefixScanWithMultiValues(UnsafeRow prefix, String family);

  StateStoreIterator<UnsafeRowPair> rangeScan(
      Option<UnsafeRow> start, Option<UnsafeRow> end, String family);

  StateStoreIterator<UnsafeRowPair> rangeScanWithMultiValues(
      Option<UnsafeRow> start, Option<UnsafeRow> end, String family);

  void deleteRange(UnsafeRow begin, UnsafeRow end, String family);

  void registerColFamily(
      String name,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec spec,
      boolean isMulti,
      boolean isInternal);

  scala.collection.immutable.Set<String> allColumnFamilyNames();
}
