package io.cairn.spark.tier;

/**
 * Reads and writes of one version in the making: an overlay over the base.
 *
 * <p>One caller at a time, though not always the same thread; whoever changes the thread publishes the session (a lock or a volatile). Keys and values
 * are regions as for {@code Platform}; the arguments may be reused once a call returns.
 */
public final class TierSession {
  TierSession() {}

  /** Finds a key's value; of a multi-value family the whole list. False: absent, {@code out} untouched. */
  public boolean get(int family, Object keyBase, long keyOffset, int keyLength, ValueRef out) {
    throw new UnsupportedOperationException();
  }

  public boolean exists(int family, Object keyBase, long keyOffset, int keyLength) {
    throw new UnsupportedOperationException();
  }

  /** Asks the engine in bulk for those of the keys that the tier cannot answer; later reads of them then need no engine, as far as room allows. */
  public void getMany(int family, byte[][] keys, int count) {
    throw new UnsupportedOperationException();
  }

  /** Writes a value. {@code versioned}: a byte 0x00 is stored before the region, which then lies 8-aligned; the value read back includes that byte. */
  public void put(
      int family, Object keyBase, long keyOffset, int keyLength, Object valueBase, long valueOffset, int valueLength, boolean versioned) {
    throw new UnsupportedOperationException();
  }

  /** Adds encoded elements at the end of a key's list; a put if there is none. Never reads. Multi-value families only. */
  public void append(int family, Object keyBase, long keyOffset, int keyLength, Object valueBase, long valueOffset, int valueLength) {
    throw new UnsupportedOperationException();
  }

  public void remove(int family, Object keyBase, long keyOffset, int keyLength) {
    throw new UnsupportedOperationException();
  }

  /** All rows of a family, in any order. */
  public TierCursor scan(int family) {
    throw new UnsupportedOperationException();
  }

  /** Rows of an ordered family with {@code from <= key < to}, ascending by unsigned bytes; null leaves that end open. */
  public TierCursor range(int family, byte[] from, byte[] to) {
    throw new UnsupportedOperationException();
  }

  /** Makes a family that the loaded version does not have: it has no committed key. Idempotent. */
  public void createFamily(int id, boolean ordered, boolean multi) {
    throw new UnsupportedOperationException();
  }

  /** Drops a family with all its keys, when this session commits. */
  public void dropFamily(int id) {
    throw new UnsupportedOperationException();
  }

  /** Fills the base with the whole committed state through the session's source, before any write. True: all families are complete now. */
  public boolean loadCommitted() {
    throw new UnsupportedOperationException();
  }

  /** Hands what is left of the overlay to the engine; no write may follow. Returns what the whole session sent. */
  public Sent finishWrites() {
    throw new UnsupportedOperationException();
  }

  /** Folds the overlay into the base, restamps it and ends the session. To be called once the version is durable, after {@link #finishWrites}. */
  public void commit(long version, String id) {
    throw new UnsupportedOperationException();
  }

  /** Forgets the session's writes and ends it. Idempotent; does nothing after commit. */
  public void abort() {
    throw new UnsupportedOperationException();
  }

  /** Whether writes of this session are with the engine already: such a session does not survive the loss of its worker. */
  public boolean hasSpilled() {
    throw new UnsupportedOperationException();
  }

  /** Whether nothing was written yet. */
  public boolean isClean() {
    throw new UnsupportedOperationException();
  }

  public boolean isOpen() {
    throw new UnsupportedOperationException();
  }

  /** Calls of {@link #get} and {@link #exists} so far. */
  public long reads() {
    throw new UnsupportedOperationException();
  }

  /** Calls of {@link #put} and {@link #append} so far. */
  public long puts() {
    throw new UnsupportedOperationException();
  }

  /** Calls of {@link #remove} so far. */
  public long removes() {
    throw new UnsupportedOperationException();
  }
}
