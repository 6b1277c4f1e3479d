package io.cairn.spark.cache;

import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.protocol.WriteBlock;
import org.apache.spark.unsafe.Platform;

/**
 * Layout of one entry in a slab; every entry starts 8-aligned.
 *
 * <pre>
 * +0  i32 key length      +4  i32 value length (MOVED: address of the newer copy)   +8  i32 capacity of the value
 * +12 i32 hash of the key +16 i32 epoch of the first insertion (overlay)            +20 u8 state  +21 u8 flags  +22 u8 presence
 * +24 key, then a gap so that the value begins one byte before an 8-aligned place: the row behind its version byte is aligned
 * </pre>
 */
final class Entry {
  /**
   * States. PUT, DELETE and APPEND are the ops of {@link WriteBlock}; in a base DELETE is a key
   * known to be absent.
   */
  static final byte DEAD = 0;

  static final byte MOVED = 9;

  /**
   * Flags. REFERENCED: read since the clock's hand passed. SHADOWED: a newer write of the open
   * session has been spilled.
   */
  static final byte REFERENCED = 1;

  static final byte SHADOWED = 2;

  static final int HEADER = 24;

  private static final int VALUE_LENGTH = 4;
  private static final int CAPACITY = 8;
  private static final int HASH = 12;
  private static final int EPOCH = 16;
  private static final int STATE = 20;
  private static final int FLAGS = 21;
  private static final int PRESENCE = 22;

  private Entry() {}

  /** Least capacity that holds a value and ends the entry 8-aligned. */
  static int capacityFor(int valueLength) {
    return ((valueLength + 6) & ~7) + 1;
  }

  static long size(int keyLength, int capacity) {
    return HEADER + ((keyLength + 8L) & ~7L) - 1 + capacity;
  }

  static int size(byte[] slab, long at) {
    return (int) size(keyLength(slab, at), capacity(slab, at));
  }

  static long key(long at) {
    return at + HEADER;
  }

  static long value(byte[] slab, long at) {
    return at + HEADER + ((keyLength(slab, at) + 8L) & ~7L) - 1;
  }

  static void write(
      byte[] slab, long at, int hash, Object keyBase, long keyOffset, int keyLength, int capacity) {
    Platform.putInt(slab, at, keyLength);
    Platform.putInt(slab, at + VALUE_LENGTH, 0);
    Platform.putInt(slab, at + CAPACITY, capacity);
    Platform.putInt(slab, at + HASH, hash);
    Platform.putLong(slab, at + EPOCH, 0L);
    Bytes.copy(keyBase, keyOffset, slab, at + HEADER, keyLength);
  }

  static int keyLength(byte[] slab, long at) {
    return Platform.getInt(slab, at);
  }

  static int valueLength(byte[] slab, long at) {
    return Platform.getInt(slab, at + VALUE_LENGTH);
  }

  static void setValueLength(byte[] slab, long at, int length) {
    Platform.putInt(slab, at + VALUE_LENGTH, length);
  }

  static int capacity(byte[] slab, long at) {
    return Platform.getInt(slab, at + CAPACITY);
  }

  static int hash(byte[] slab, long at) {
    return Platform.getInt(slab, at + HASH);
  }

  static int epoch(byte[] slab, long at) {
    return Platform.getInt(slab, at + EPOCH);
  }

  static void setEpoch(byte[] slab, long at, int epoch) {
    Platform.putInt(slab, at + EPOCH, epoch);
  }

  static byte state(byte[] slab, long at) {
    return Platform.getByte(slab, at + STATE);
  }

  static void setState(byte[] slab, long at, byte state) {
    Platform.putByte(slab, at + STATE, state);
  }

  static boolean has(byte[] slab, long at, byte flag) {
    return (Platform.getByte(slab, at + FLAGS) & flag) != 0;
  }

  static void raise(byte[] slab, long at, byte flag) {
    Platform.putByte(slab, at + FLAGS, (byte) (Platform.getByte(slab, at + FLAGS) | flag));
  }

  static void lower(byte[] slab, long at, byte flag) {
    Platform.putByte(slab, at + FLAGS, (byte) (Platform.getByte(slab, at + FLAGS) & ~flag));
  }

  static byte presence(byte[] slab, long at) {
    return Platform.getByte(slab, at + PRESENCE);
  }

  static void setPresence(byte[] slab, long at, byte presence) {
    Platform.putByte(slab, at + PRESENCE, presence);
  }
}
