package io.cairn.spark.minor;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyValueChecksum;
import org.apache.spark.sql.execution.streaming.state.KeyValueChecksumEncoder;
import org.apache.spark.sql.execution.streaming.state.KeyValueIntegrityVerifier;
import org.apache.spark.sql.execution.streaming.state.RocksDBValueStateEncoder;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreRowChecksumVerificationFailed;
import scala.Option;
import scala.collection.Iterator;

/** Spark's checksums of rows. */
public final class SparkChecksums {
  /** Lists are concatenated without a byte between their elements. */
  private static final int DELIMITER_BYTES = 0;

  private final Option<KeyValueIntegrityVerifier> verifier;

  private SparkChecksums(Option<KeyValueIntegrityVerifier> verifier) {
    this.verifier = verifier;
  }

  /** Returns the checksums of a store's rows, or null if the settings do not ask for them. */
  public static SparkChecksums of(StateStoreConf conf, String store) {
    return conf.rowChecksumEnabled()
        ? new SparkChecksums(
            KeyValueIntegrityVerifier.create(store, true, conf.rowChecksumReadVerificationRatio()))
        : null;
  }

  /** Whether Spark found that a value is not its key's own. */
  public static boolean isMismatch(Exception failure) {
    return failure instanceof StateStoreRowChecksumVerificationFailed;
  }

  /** Returns the stored form of an encoded value, or of one element of a list. */
  public byte[] add(byte[] key, byte[] value) {
    int checksum = KeyValueChecksum.create(key, Option.apply(value));
    return KeyValueChecksumEncoder.encodeValueRowWithChecksum(value, checksum);
  }

  /** Returns the encoded value, or the elements of a list without their checksums. */
  public byte[] verified(byte[] key, byte[] stored) {
    return KeyValueChecksumEncoder.decodeAndVerifyValueRowWithChecksum(
        verifier, key, stored, DELIMITER_BYTES);
  }

  /** Decodes the elements of a list; each is verified when it is returned. */
  public Iterator<UnsafeRow> values(RocksDBValueStateEncoder encoder, byte[] key, byte[] stored) {
    return encoder.decodeValues(
        KeyValueChecksumEncoder.decodeAndVerifyMultiValueRowWithChecksum(
            verifier, key, stored, DELIMITER_BYTES));
  }
}
