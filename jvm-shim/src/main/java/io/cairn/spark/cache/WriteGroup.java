package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.EntryMap;

/**
 * The latest writes of one family, which the write buffer does not have yet.
 *
 * <p>Most of the time of a write is waiting for memory: its key is searched at a random place of
 * two maps. So the places of a group of writes are read first, one independent of the other, and
 * then the writes enter the buffer, in their order. A read, a scan or a commit ends the group. No
 * bound counts its 8 KiB.
 */
final class WriteGroup {
  private static final int MAX_WRITES = 32;
  private static final int MAX_BYTES = 1 << 13;

  /** Larger rows would fill a group too soon. */
  private static final int MAX_ROW_BYTES = MAX_BYTES / 8;

  /** For fewer writes the search itself waits no longer. */
  private static final int MIN_TOUCHED = 4;

  private static final byte[] NONE = {};

  /** Keys and values; allocated for the first write. */
  private byte[] bytes = NONE;

  private final int[] keyAt = new int[MAX_WRITES];
  private final int[] valueAt = new int[MAX_WRITES];

  /** -1: the write removes its key. */
  private final int[] valueLength = new int[MAX_WRITES];

  private final boolean[] isVersioned = new boolean[MAX_WRITES];
  private final int[] hashes = new int[MAX_WRITES];
  private final int[] addresses = new int[MAX_WRITES];
  private CachedFamily family;
  private int count;
  private int end;

  /** Keeps the compiler from leaving out reads whose result nobody needs. */
  private int sum;

  int count() {
    return count;
  }

  /** The family of all writes. */
  CachedFamily family() {
    return family;
  }

  /**
   * Adds a write; null value: a removal. False: there is no space, or the other writes are of
   * another family; or the row is too large for any group.
   */
  boolean add(CachedFamily to, ByteSpan key, ByteSpan value, boolean valueIsVersioned) {
    int length = value == null ? 0 : value.length;
    if (!hasSpace(to, key.length, length)) {
      return false;
    }
    if (bytes == NONE) {
      bytes = new byte[MAX_BYTES];
    }
    family = to;
    int at = end;
    Bytes.copy(key, bytes, Bytes.ARRAY + at);
    keyAt[count] = at;
    valueAt[count] = at + key.length;
    valueLength[count] = -1;
    if (value != null) {
      Bytes.copy(value, bytes, Bytes.ARRAY + at + key.length);
      valueLength[count] = length;
    }
    isVersioned[count] = valueIsVersioned;
    hashes[count] = Bytes.hash(key);
    end = at + key.length + length;
    count++;
    return true;
  }

  private boolean hasSpace(CachedFamily to, int keyLength, int length) {
    boolean isSmall = keyLength <= MAX_ROW_BYTES && length <= MAX_ROW_BYTES - keyLength;
    return isSmall
        && (count == 0
            || family == to && count < MAX_WRITES && end + keyLength + length <= MAX_BYTES);
  }

  /** Reads what the searches for the keys will read. {@code written} may be null. */
  void touch(EntryMap written) {
    if (count < MIN_TOUCHED) {
      return;
    }
    if (written != null) {
      sum += written.touch(hashes, addresses, count);
    }
    sum += family.touch(hashes, addresses, count);
  }

  int hash(int index) {
    return hashes[index];
  }

  /** See {@link WriteBuffer#put}. */
  boolean isVersioned(int index) {
    return isVersioned[index];
  }

  /** Sets {@code key}, and {@code value} unless the write is a removal; returns whether it is. */
  boolean get(int index, ByteSpan key, ByteSpan value) {
    int at = keyAt[index];
    key.set(bytes, Bytes.ARRAY + at, valueAt[index] - at);
    if (valueLength[index] < 0) {
      return true;
    }
    value.set(bytes, Bytes.ARRAY + valueAt[index], valueLength[index]);
    return false;
  }

  /** Forgets the writes; those that were read stay readable until the next is added. */
  void clear() {
    count = 0;
    end = 0;
  }
}
