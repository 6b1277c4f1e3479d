package io.cairn.spark.codec;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.minor.SparkChecksums;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.RocksDBValueStateEncoder;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
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
  private final SparkChecksums spark;
  private final String store;
  private final LongSupplier version;

  private RowChecksums(SparkChecksums spark, String store, LongSupplier version) {
    this.spark = spark;
    this.store = store;
    this.version = version;
  }

  /**
   * Returns the checksums of a store's rows, or null if the settings do not ask for them.
   *
   * @param version the loaded version, for errors
   */
  public static RowChecksums of(StateStoreConf conf, String store, LongSupplier version) {
    SparkChecksums spark = SparkChecksums.of(conf, store);
    return spark == null ? null : new RowChecksums(spark, store, version);
  }

  /** Returns the stored form of an encoded value, or of one element of a list. */
  byte[] add(ByteSpan key, byte[] value) {
    return spark.add(key.toArray(), value);
  }

  /**
   * Returns the encoded value, or the elements of a list without their checksums. Throws Spark's
   * error if key and value do not belong together.
   */
  byte[] verified(ByteSpan key, ByteSpan stored) {
    return verify(() -> spark.verified(key.toArray(), stored.toArray()));
  }

  /** Decodes the elements of a list; each is verified when it is returned. */
  Iterator<UnsafeRow> values(RocksDBValueStateEncoder encoder, ByteSpan key, ByteSpan stored) {
    Iterator<UnsafeRow> elements = spark.values(encoder, key.toArray(), stored.toArray());
    return new AbstractIterator<>() {
      @Override
      public boolean hasNext() {
        return elements.hasNext();
      }

      @Override
      public UnsafeRow next() {
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
      if (SparkChecksums.isMismatch(e)) {
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
