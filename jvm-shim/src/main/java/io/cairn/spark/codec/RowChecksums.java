package io.cairn.spark.codec;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.apache.spark.sql.execution.streaming.state.ArrayIndexRange;
import org.apache.spark.sql.execution.streaming.state.KeyValueChecksum;
import org.apache.spark.sql.execution.streaming.state.KeyValueChecksumEncoder;
import org.apache.spark.sql.execution.streaming.state.KeyValueIntegrityVerifier;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreRowChecksumVerificationFailed;
import scala.Option;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * A checksum with each stored value, of it and its key, in Spark's layout and by its classes.
 *
 * <p>It is made when Spark writes the row and verified when Spark reads it, so it also covers what
 * the checksums of objects do not: the caches, the frames, and the local database. One caller at a
 * time.
 */
public final class RowChecksums {
  /** Lists are concatenated without a byte between their elements. */
  private static final int DELIMITER_BYTES = 0;

  private final Option<KeyValueIntegrityVerifier> verifier;
  private final String store;
  private final LongSupplier version;

  private RowChecksums(
      Option<KeyValueIntegrityVerifier> verifier, String store, LongSupplier version) {
    this.verifier = verifier;
    this.store = store;
    this.version = version;
  }

  /**
   * Returns the checksums of a store's rows, or null if the settings do not ask for them.
   *
   * @param version the loaded version, for errors
   */
  public static RowChecksums of(StateStoreConf conf, String store, LongSupplier version) {
    return conf.rowChecksumEnabled()
        ? new RowChecksums(
            KeyValueIntegrityVerifier.create(store, true, conf.rowChecksumReadVerificationRatio()),
            store,
            version)
        : null;
  }

  /** Returns the stored form of an encoded value, or of one element of a list. */
  byte[] add(ByteSpan key, byte[] value) {
    int checksum = KeyValueChecksum.create(key.toArray(), Option.apply(value));
    return KeyValueChecksumEncoder.encodeValueRowWithChecksum(value, checksum);
  }

  /**
   * Returns the encoded value, or the elements of a list without their checksums. Throws Spark's
   * {@link StateStoreRowChecksumVerificationFailed} if key and value do not belong together.
   */
  byte[] verified(ByteSpan key, ByteSpan stored) {
    return verify(
        () ->
            KeyValueChecksumEncoder.decodeAndVerifyValueRowWithChecksum(
                verifier, key.toArray(), stored.toArray(), DELIMITER_BYTES));
  }

  /** Returns the encoded elements of a list; each is verified when it is returned. */
  Iterator<ArrayIndexRange<Object>> verifiedElements(ByteSpan key, ByteSpan stored) {
    Iterator<ArrayIndexRange<Object>> elements =
        KeyValueChecksumEncoder.decodeAndVerifyMultiValueRowWithChecksum(
            verifier, key.toArray(), stored.toArray(), DELIMITER_BYTES);
    return new AbstractIterator<>() {
      @Override
      public boolean hasNext() {
        return elements.hasNext();
      }

      @Override
      public ArrayIndexRange<Object> next() {
        return verify(elements::next);
      }
    };
  }

  private <T> T verify(Supplier<T> decode) {
    try {
      return decode.get();
    } catch (NegativeArraySizeException | IndexOutOfBoundsException e) {
      // The length before the value is damaged.
      throw corrupt(e);
    } catch (Exception e) {
      // Spark throws its checked exception undeclared.
      if (e instanceof StateStoreRowChecksumVerificationFailed) {
        e.addSuppressed(corrupt(null));
      }
      throw e;
    }
  }

  private CairnException corrupt(Throwable cause) {
    return CairnException.of(
            ErrorKind.CORRUPT,
            "CAIRN_CORRUPT",
            "a value differs from its row checksum",
            "restart the query: it loads the version again from the object store. If it fails"
                + " again, restart it from a version before",
            cause)
        .at(store, version.getAsLong());
  }
}
