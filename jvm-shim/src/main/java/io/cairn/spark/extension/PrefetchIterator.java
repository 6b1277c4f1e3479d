package io.cairn.spark.extension;

import io.cairn.spark.session.KeyPrefetch;
import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The input rows of a stateful operator, unchanged and in their order; the keys of a buffer of rows
 * are in the cache before its first row leaves, as far as memory allows.
 *
 * <p>Two buffers are in use: the rows of one leave while the keys of the other are requested. A
 * buffer has at most {@code maxRows} rows, fewer if the cache is small, and ends with the row that
 * reaches {@link #MAX_BYTES}. Nothing is buffered while the cache answers all reads, or if the
 * store is not Cairn's.
 *
 * <p>Spark opens the store after it has created this iterator, and before it asks for the first
 * row: the store is looked up then.
 */
public final class PrefetchIterator extends AbstractIterator<InternalRow> {
  /**
   * As many as one request has keys. Most buffers end earlier: with the row that reaches {@link
   * #MAX_BYTES}, or at what the cache can hold ({@link KeyPrefetch#keyLimit}).
   */
  public static final int MAX_ROWS = 16_384;

  static final int MAX_BYTES = 1 << 20;

  /** After so many rows that were not buffered, the iterator looks again whether to buffer. */
  private static final int ROWS_UNTIL_CHECK = 256;

  /** Elements of lists that are requested for the rows of one buffer: most lists have one. */
  private static final int MAX_ELEMENTS = MAX_ROWS;

  /**
   * A column family in which the operator reads the keys of its input rows.
   *
   * @param isPrefix it scans all keys of the family that have the row's key as their prefix
   * @param index null: none
   */
  public record Target(StateStoreId store, String family, boolean isPrefix, Index index) {
    private KeyPrefetch find() {
      KeyPrefetch found =
          isPrefix ? KeyPrefetch.findPrefixes(store, family) : KeyPrefetch.find(store, family);
      if (found != null && index != null) {
        found.followIndex(index.family, index.keyOf);
      }
      return found;
    }
  }

  /**
   * A family that the operator scans for the keys of another one.
   *
   * @param keyOf returns the encoded key that an encoded key of the index names; null: none
   */
  public record Index(String family, UnaryOperator<byte[]> keyOf) {}

  /**
   * A list per key, as Spark's joins keep it: its length in one family, its elements in another one
   * under the key and their index.
   *
   * @param elementKey creates the projection of an input row to the key of an element; its last
   *     column is the index
   */
  public record Lists(Target lengths, Target elements, Supplier<UnsafeProjection> elementKey) {}

  private static final class Buffer {
    final InternalRow[] rows;
    int count;
    int position;

    Buffer(int maxRows) {
      rows = new InternalRow[maxRows];
    }

    InternalRow take() {
      InternalRow row = rows[position];
      rows[position++] = null;
      return row;
    }
  }

  private final Iterator<InternalRow> input;
  private final Supplier<UnsafeProjection> keys;
  private final List<Target> targets;
  private final Lists lists;
  private final int maxRows;
  private final List<KeyPrefetch> prefetches = new ArrayList<>();
  private UnsafeProjection toKey;

  /** Null: the operator reads no lists. */
  private KeyPrefetch lengths;

  private KeyPrefetch elements;
  private UnsafeProjection toElementKey;

  /** Rows that leave now. */
  private Buffer ready;

  /** Rows whose keys are requested. */
  private Buffer requested;

  private Buffer coming;

  /** Rows that leave without a buffer before the next check. */
  private long unbufferedRows;

  private boolean isStarted;

  /**
   * @param keys creates the projection of an input row to the operator's key
   * @param targets those that the task does not have open are ignored
   * @param lists null if the operator reads none
   */
  public PrefetchIterator(
      Iterator<InternalRow> input,
      Supplier<UnsafeProjection> keys,
      List<Target> targets,
      Lists lists,
      int maxRows) {
    this.input = input;
    this.keys = keys;
    this.targets = targets;
    this.lists = lists;
    this.maxRows = maxRows;
  }

  @Override
  public boolean hasNext() {
    return hasReadyRow() || refill();
  }

  @Override
  public InternalRow next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    if (hasReadyRow()) {
      return ready.take();
    }
    unbufferedRows--;
    return input.next();
  }

  private boolean hasReadyRow() {
    return ready != null && ready.position < ready.count;
  }

  /** Prepares the next rows; false at the end of the input. REQUIRES: no row is ready. */
  private boolean refill() {
    if (!isStarted) {
      start();
    }
    if (unbufferedRows == 0 && requested.count == 0) {
      read(requested);
      prefetches.forEach(KeyPrefetch::start);
    }
    if (requested == null || requested.count == 0) {
      return input.hasNext();
    }
    // The engine answers the last request meanwhile.
    read(coming);
    prefetches.forEach(KeyPrefetch::finish);
    if (elements != null && elements.isUseful()) {
      fetchElements(requested);
    }
    prefetches.forEach(KeyPrefetch::start);
    Buffer consumed = ready;
    ready = requested;
    requested = coming;
    coming = consumed;
    return true;
  }

  private void start() {
    isStarted = true;
    for (Target target : targets) {
      KeyPrefetch found = target.find();
      if (found != null) {
        prefetches.add(found);
      }
    }
    if (prefetches.isEmpty()) {
      unbufferedRows = Long.MAX_VALUE;
      return;
    }
    toKey = keys.get();
    if (lists != null) {
      startLists();
    }
    ready = new Buffer(maxRows);
    requested = new Buffer(maxRows);
    coming = new Buffer(maxRows);
  }

  private void startLists() {
    lengths = lists.lengths.find();
    elements = lists.elements.find();
    if (lengths == null || elements == null) {
      elements = null;
    } else {
      toElementKey = lists.elementKey.get();
    }
  }

  /** Requests the elements of the rows' lists, whose lengths are cached now, and waits for them. */
  private void fetchElements(Buffer rows) {
    int left = MAX_ELEMENTS;
    long bytes = 0;
    for (int i = 0; i < rows.count && left > 0 && bytes < MAX_BYTES; i++) {
      long length = Math.min(left, lengths.cachedNumber(toKey.apply(rows.rows[i])));
      if (length > 0) {
        UnsafeRow key = toElementKey.apply(rows.rows[i]);
        for (long index = 0; index < length && bytes < MAX_BYTES; index++) {
          key.setLong(key.numFields() - 1, index);
          elements.add(key);
          bytes += key.getSizeInBytes();
        }
        left -= (int) length;
      }
    }
    elements.start();
    elements.finish();
  }

  /** Fills a buffer, and adds the keys of its rows to the next request. */
  private void read(Buffer into) {
    into.count = 0;
    into.position = 0;
    boolean isUseful =
        prefetches.stream().anyMatch(KeyPrefetch::isUseful)
            || elements != null && elements.isUseful();
    if (!isUseful) {
      unbufferedRows = ROWS_UNTIL_CHECK;
      return;
    }
    int rowLimit = maxRows;
    for (KeyPrefetch prefetch : prefetches) {
      rowLimit = Math.min(rowLimit, prefetch.keyLimit());
    }
    if (elements != null) {
      // Most lists have one.
      rowLimit = Math.min(rowLimit, elements.keyLimit());
    }
    int bytes = 0;
    while (into.count < rowLimit && bytes < MAX_BYTES && input.hasNext()) {
      InternalRow row = input.next();
      if (row instanceof UnsafeRow unsafe) {
        bytes += unsafe.getSizeInBytes();
      } else {
        // Its size is unknown: it ends the buffer.
        bytes = MAX_BYTES;
      }
      into.rows[into.count++] = row.copy();
      UnsafeRow key = toKey.apply(row);
      for (KeyPrefetch prefetch : prefetches) {
        prefetch.add(key);
      }
    }
  }
}
