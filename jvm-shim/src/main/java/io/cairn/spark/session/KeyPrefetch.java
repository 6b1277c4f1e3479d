package io.cairn.spark.session;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.cache.Prefetcher;
import io.cairn.spark.codec.RowCodec;
import java.util.Arrays;
import java.util.function.UnaryOperator;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;

/**
 * Collects the keys that an operator is about to read in one column family, and requests them in
 * bulk before it does.
 *
 * <p>A hint: a key that the operator does not read, or reads in another encoding, costs time and
 * changes nothing. Used by the thread of the task, between the row calls of the operator.
 */
public final class KeyPrefetch {
  private final StoreSession session;
  private final StoreSession.OpenFamily family;
  private byte[][] keys = new byte[64][];
  private int count;

  /** Receives the reply of the last request; null: there is none. */
  private Prefetcher.Request inFlight;

  /** The rows are read by scans of these keys as prefixes. */
  private final boolean arePrefixes;

  private final ByteSpan keySpan = new ByteSpan();
  private final ByteSpan value = new ByteSpan();
  private final UnsafeRow number = new UnsafeRow(1);

  private KeyPrefetch(StoreSession session, StoreSession.OpenFamily family, boolean arePrefixes) {
    this.session = session;
    this.family = family;
    this.arePrefixes = arePrefixes;
  }

  /**
   * Finds the family in the session that the running task has open for the store. Null: there is no
   * such session or family, so nothing can be prefetched.
   */
  public static KeyPrefetch find(StateStoreId store, String familyName) {
    return find(store, familyName, false);
  }

  /** As {@link #find}, for keys that are prefixes of the keys that the operator reads. */
  public static KeyPrefetch findPrefixes(StateStoreId store, String familyName) {
    return find(store, familyName, true);
  }

  private static KeyPrefetch find(StateStoreId store, String familyName, boolean arePrefixes) {
    StoreSession session = TaskSessions.find(store);
    if (session == null) {
      return null;
    }
    session.enter("prefetch");
    try {
      if (!isPresent(session, familyName)) {
        return null;
      }
      StoreSession.OpenFamily found = session.family("prefetch", familyName);
      boolean isScanned = found.family().codec().supportsPrefixScan();
      return arePrefixes && !isScanned ? null : new KeyPrefetch(session, found, arePrefixes);
    } finally {
      session.leave();
    }
  }

  /**
   * Tells that another family of the store, if it has it, is an index of this one: the operator may
   * scan it, and read the keys that its keys name.
   *
   * @param keyOf returns the encoded key that an encoded key of the index names; null: none
   */
  public void followIndex(String indexName, UnaryOperator<byte[]> keyOf) {
    session.enter("prefetch");
    try {
      if (isPresent(session, indexName)) {
        int index = session.family("prefetch", indexName).id();
        session.cache.followIndex(index, family.id(), keyOf);
      }
    } finally {
      session.leave();
    }
  }

  private static boolean isPresent(StoreSession session, String familyName) {
    return session.present().containsKey(familyName) && session.families.get(familyName) != null;
  }

  /** Whether reads of the family may need the engine. False: its keys need no prefetch. */
  public boolean isUseful() {
    return session.isOpen() && session.cache.prefetcher.isUseful(family.id());
  }

  /** Keys that the next request should have at most; see {@link Prefetcher#keyLimit}. */
  public int keyLimit() {
    Prefetcher prefetcher = session.cache.prefetcher;
    return arePrefixes ? prefetcher.prefixLimit(family.id()) : prefetcher.keyLimit(family.id());
  }

  /** Adds a key to the next request; the row may be reused afterwards. */
  public void add(UnsafeRow key) {
    if (!session.isOpen()) {
      return;
    }
    if (count == keys.length) {
      keys = Arrays.copyOf(keys, 2 * count);
    }
    RowCodec codec = family.family().codec();
    session.enter("prefetch");
    try {
      keys[count++] = arePrefixes ? codec.prefixBytes(key) : codec.keyBytes(key);
    } finally {
      session.leave();
    }
  }

  /**
   * Requests the added keys and returns without the reply. REQUIRES: the last request is finished.
   */
  public void start() {
    if (count > 0 && isUseful()) {
      session.enter("prefetch");
      try {
        inFlight = request();
      } finally {
        session.leave();
      }
    }
    Arrays.fill(keys, 0, count, null);
    count = 0;
  }

  private Prefetcher.Request request() {
    Prefetcher prefetcher = session.cache.prefetcher;
    return arePrefixes
        ? prefetcher.startPrefixes(family.id(), keys, count)
        : prefetcher.start(family.id(), keys, count);
  }

  /**
   * Returns the value of a key, if that is one number and in the cache; else 0. REQUIRES: the value
   * of the family has one column.
   */
  public long cachedNumber(UnsafeRow key) {
    RowCodec codec = family.family().codec();
    if (!codec.isPlainValue() || !session.isOpen()) {
      return 0;
    }
    session.enter("prefetch");
    try {
      keySpan.set(codec.keyBytes(key));
      if (!session.cache.prefetcher.find(family.id(), keySpan, value)) {
        return 0;
      }
      // A version byte precedes the row.
      number.pointTo(value.base, value.offset + 1, value.length - 1);
      return number.getLong(0);
    } finally {
      session.leave();
    }
  }

  /** Waits until the reads of the requested keys find them in the cache. */
  public void finish() {
    Prefetcher.Request request = inFlight;
    inFlight = null;
    if (request != null && session.isOpen()) {
      session.enter("prefetch");
      try {
        request.finish();
      } finally {
        session.leave();
      }
    }
  }
}
