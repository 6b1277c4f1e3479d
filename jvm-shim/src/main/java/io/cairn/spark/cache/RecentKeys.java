package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;

/**
 * The key of the running call of a write buffer with the result of its search, and those of the
 * last two reads: an operator that looks one row ahead writes a key after the next read.
 */
final class RecentKeys {
  private LastKey lastRead = new LastKey();
  private LastKey readBefore = new LastKey();

  /** Of the last write of a key that was not read; never remembered. */
  private final LastKey written = new LastKey();

  /** One of the three. */
  private LastKey last = written;

  /** The result for the key of the call. */
  LastKey last() {
    return last;
  }

  /** Makes {@link #last} the result of a key, if that is remembered. */
  boolean recall(CachedFamily family, ByteSpan key) {
    if (lastRead.is(family, key)) {
      last = lastRead;
    } else if (readBefore.is(family, key)) {
      last = readBefore;
    } else {
      return false;
    }
    return true;
  }

  /**
   * Finds a key that is read, and remembers it.
   *
   * @param writes of the family; null: there are none
   */
  LastKey findToRead(CachedFamily family, ByteSpan key, Writes writes) {
    if (!recall(family, key)) {
      last = readBefore;
      readBefore = lastRead;
      lastRead = last;
      search(last, key, Bytes.hash(key), writes);
      last.remember(family, key);
    }
    return last;
  }

  /** Finds a key that is written. */
  LastKey findToWrite(CachedFamily family, ByteSpan key, Writes writes) {
    if (!recall(family, key)) {
      search(key, Bytes.hash(key), writes);
    }
    return last;
  }

  /** Searches a key that is written and not remembered. */
  void search(ByteSpan key, int hash, Writes writes) {
    last = written;
    search(written, key, hash, writes);
  }

  /** Searches the key of the call again, which is not remembered any more. */
  void searchAgain(ByteSpan key, Writes writes) {
    search(last, key, last.hash, writes);
  }

  private static void search(LastKey into, ByteSpan key, int hash, Writes writes) {
    into.forget();
    into.hash = hash;
    into.presence = LastKey.NOT_SEARCHED;
    into.address = writes == null ? 0 : writes.find(hash, key);
  }

  /** REQUIRES: before addresses become invalid. */
  void forget() {
    lastRead.forget();
    readBefore.forget();
  }
}
