package io.cairn.spark;

import io.cairn.spark.codec.RowCodec;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors;

/** What a call must find; what it does not is refused in the words of Spark's own providers. */
final class Requirements {
  private Requirements() {}

  static void writable(boolean isReadOnly, String operation) {
    if (isReadOnly) {
      throw StateStoreErrors.stateStoreOperationOutOfOrder(
          "Cannot " + operation + " on a store opened to read");
    }
  }

  /** The version that a committed session made. */
  static StoreVersion committed(StoreSession session) {
    StoreVersion result = session.result();
    if (session.state() != SessionState.COMMITTED || result == null) {
      throw StateStoreErrors.stateStoreOperationOutOfOrder(
          "Cannot tell the checkpoint id of a store that was not committed");
    }
    return result;
  }

  static UnsafeRow key(UnsafeRow key) {
    if (key == null) {
      throw new IllegalArgumentException("requirement failed: Key cannot be null");
    }
    return key;
  }

  static void value(String operation, UnsafeRow value) {
    if (value == null) {
      throw new IllegalArgumentException(
          "requirement failed: Cannot " + operation + " a null value");
    }
  }

  static UnsafeRow[] values(UnsafeRow[] values) {
    if (values == null || values.length == 0) {
      throw new IllegalArgumentException("requirement failed: Cannot put an empty list");
    }
    for (UnsafeRow value : values) {
      value("put", value);
    }
    return values;
  }

  /** The codec of a family that holds lists. */
  static RowCodec multi(StoreSession.OpenFamily open, String operation) {
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

  static void prefixScan(RowCodec codec) {
    if (!codec.supportsPrefixScan()) {
      throw new IllegalArgumentException(
          "requirement failed: Prefix scan requires setting prefix key!");
    }
  }

  static void rangeScan(RowCodec codec, String family) {
    if (!codec.supportsRangeScan()) {
      throw new IllegalArgumentException(
          "requirement failed: Range scan requires a range-scan encoder for column family: "
              + family);
    }
  }

  static void deleteRange(RowCodec codec, String family) {
    if (!codec.supportsDeleteRange()) {
      throw new IllegalArgumentException(
          "requirement failed: deleteRange requires a RangeKeyScanStateEncoderSpec for column"
              + " family "
              + family);
    }
  }
}
