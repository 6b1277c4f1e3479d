package io.cairn.spark.cache.memory;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import org.apache.spark.unsafe.Platform;

/**
 * Layout of one entry in a slab; every entry starts 8-aligned.
 *
 * <pre>
 * +0  i32 key length  +4  i32 value length  +8  i32 capacity of the value
 * +12 i32 hash of the key; of a former version: its end epoch
 * +16 i32 epoch of the last write (write buffer)  +20 i8 state  +21 u8 flags  +22 u8 presence
 * +24 key, then a gap; the value begins one byte before an 8-aligned place, so the row after its version byte is aligned
 * the last 4 bytes of the capacity with flag HAS_FORMER: i32 address of the former version
 * </pre>
 */
public final class Entry {
  /** The entry is in no index. The caller defines the states above it. */
  public static final byte DEAD = 0;

  /**
   * Added to the state of a former version, which is negative then: the entry is in no index, but
   * scans that were opened before the newer version see it.
   */
  private static final byte FORMER = Byte.MIN_VALUE;

  /** Flag: read since the last pass of the eviction. */
  public static final byte REFERENCED = 1;

  /** Flag: the open session has spilled a newer write. */
  public static final byte SHADOWED = 2;

  /** Flag: requested for a coming read. */
  public static final byte AWAITED = 4;

  /** Flag: the entry names its former version. */
  private static final byte HAS_FORMER = 8;

  /** Capacity that the address of a former version needs. */
  public static final int FORMER_BYTES = 4;

  private static final int HEADER = 24;
  private static final int VALUE_LENGTH = 4;
  private static final int CAPACITY = 8;
  private static final int HASH = 12;
  private static final int EPOCH = 16;
  private static final int STATE = 20;
  private static final int FLAGS = 21;
  private static final int PRESENCE = 22;

  private Entry() {}

  /** The least capacity for a value with which the entry ends 8-aligned. */
  public static int capacityFor(int valueLength) {
    return ((valueLength + 6) & ~7) + 1;
  }

  public static long size(int keyLength, int capacity) {
    return HEADER + ((keyLength + 8L) & ~7L) - 1 + capacity;
  }

  public static int size(byte[] slab, long at) {
    return (int) size(keyLength(slab, at), capacity(slab, at));
  }

  static void write(byte[] slab, long at, int hash, ByteSpan key, int capacity) {
    Platform.putInt(slab, at, key.length);
    Platform.putInt(slab, at + VALUE_LENGTH, 0);
    Platform.putInt(slab, at + CAPACITY, capacity);
    Platform.putInt(slab, at + HASH, hash);
    Platform.putLong(slab, at + EPOCH, 0L);
    Bytes.copy(key, slab, at + HEADER);
  }

  public static void key(byte[] slab, long at, ByteSpan into) {
    into.set(slab, at + HEADER, keyLength(slab, at));
  }

  public static void value(byte[] slab, long at, ByteSpan into) {
    into.set(slab, valueAt(slab, at), valueLength(slab, at));
  }

  public static long keyAt(long at) {
    return at + HEADER;
  }

  public static long valueAt(byte[] slab, long at) {
    return at + HEADER + ((keyLength(slab, at) + 8L) & ~7L) - 1;
  }

  public static int keyLength(byte[] slab, long at) {
    return Platform.getInt(slab, at);
  }

  public static int valueLength(byte[] slab, long at) {
    return Platform.getInt(slab, at + VALUE_LENGTH);
  }

  public static void setValueLength(byte[] slab, long at, int length) {
    Platform.putInt(slab, at + VALUE_LENGTH, length);
  }

  public static void setValue(byte[] slab, long at, ByteSpan value) {
    setValueLength(slab, at, value.length);
    Bytes.copy(value, slab, valueAt(slab, at));
  }

  /** Copies the value of an entry to another one that has the capacity. */
  public static void copyValue(byte[] from, long fromAt, byte[] to, long toAt) {
    int length = valueLength(from, fromAt);
    setValueLength(to, toAt, length);
    Bytes.copy(from, valueAt(from, fromAt), to, valueAt(to, toAt), length);
  }

  public static int capacity(byte[] slab, long at) {
    return Platform.getInt(slab, at + CAPACITY);
  }

  public static int hash(byte[] slab, long at) {
    return Platform.getInt(slab, at + HASH);
  }

  public static int epoch(byte[] slab, long at) {
    return Platform.getInt(slab, at + EPOCH);
  }

  public static void setEpoch(byte[] slab, long at, int epoch) {
    Platform.putInt(slab, at + EPOCH, epoch);
  }

  public static byte state(byte[] slab, long at) {
    return Platform.getByte(slab, at + STATE);
  }

  public static void setState(byte[] slab, long at, byte state) {
    Platform.putByte(slab, at + STATE, state);
  }

  /** The state that an entry has, or had before it became a former version. */
  public static byte op(byte[] slab, long at) {
    return (byte) (state(slab, at) & ~FORMER);
  }

  /** Makes an entry the former version of one that is written in this epoch. */
  public static void endVersion(byte[] slab, long at, int endEpoch) {
    setState(slab, at, (byte) (state(slab, at) | FORMER));
    Platform.putInt(slab, at + HASH, endEpoch);
  }

  /** The epoch in which a former version was replaced. */
  public static int endEpoch(byte[] slab, long at) {
    return Platform.getInt(slab, at + HASH);
  }

  /** Address of the version before this one; 0: there is none. */
  public static int former(byte[] slab, long at) {
    return has(slab, at, HAS_FORMER) ? Platform.getInt(slab, formerAt(slab, at)) : 0;
  }

  /** REQUIRES: the value leaves {@link #FORMER_BYTES} of the capacity, also later. */
  public static void setFormer(byte[] slab, long at, int address) {
    raise(slab, at, HAS_FORMER);
    Platform.putInt(slab, formerAt(slab, at), address);
  }

  private static long formerAt(byte[] slab, long at) {
    return valueAt(slab, at) + capacity(slab, at) - FORMER_BYTES;
  }

  public static boolean has(byte[] slab, long at, byte flag) {
    return (Platform.getByte(slab, at + FLAGS) & flag) != 0;
  }

  public static void raise(byte[] slab, long at, byte flag) {
    Platform.putByte(slab, at + FLAGS, (byte) (Platform.getByte(slab, at + FLAGS) | flag));
  }

  public static void lower(byte[] slab, long at, byte flag) {
    Platform.putByte(slab, at + FLAGS, (byte) (Platform.getByte(slab, at + FLAGS) & ~flag));
  }

  /** Raises {@link #REFERENCED} and lowers {@link #AWAITED}. */
  public static void noteRead(byte[] slab, long at) {
    byte before = Platform.getByte(slab, at + FLAGS);
    byte after = (byte) (before & ~AWAITED | REFERENCED);
    if (after != before) {
      Platform.putByte(slab, at + FLAGS, after);
    }
  }

  public static byte presence(byte[] slab, long at) {
    return Platform.getByte(slab, at + PRESENCE);
  }

  public static void setPresence(byte[] slab, long at, byte presence) {
    Platform.putByte(slab, at + PRESENCE, presence);
  }
}
