package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HashMap;
import java.util.Map;
import java.util.zip.CRC32C;

/**
 * The keys that a session's calls have put or appended to and not removed, kept apart from the
 * write buffer and from all that is sent: the engine compares a digest of them with what it
 * commits. For tests: only while assertions are enabled.
 *
 * <p>Spec: docs/protocol.md#what-a-commit-rests-on.
 */
final class SessionMirror {
  private final Map<Integer, Map<ByteBuffer, Long>> left = new HashMap<>();

  private SessionMirror() {}

  static SessionMirror ifAssertionsAreEnabled() {
    SessionMirror mirror = null;
    assert (mirror = new SessionMirror()) != null;
    return mirror;
  }

  void put(CachedFamily family, ByteSpan key, ByteSpan value, boolean isVersioned) {
    CRC32C sum = begin(family, key);
    if (!family.isMulti) {
      if (isVersioned) {
        sum.update(0);
      }
      sum.update(value.toArray());
    }
    keysOf(family.id).put(ByteBuffer.wrap(key.toArray()), sum.getValue());
  }

  void append(CachedFamily family, ByteSpan key) {
    keysOf(family.id).put(ByteBuffer.wrap(key.toArray()), begin(family, key).getValue());
  }

  void remove(CachedFamily family, ByteSpan key) {
    keysOf(family.id).remove(ByteBuffer.wrap(key.toArray()));
  }

  void drop(int family) {
    left.remove(family);
  }

  long digest() {
    long sum = 0;
    for (Map<ByteBuffer, Long> keys : left.values()) {
      for (long one : keys.values()) {
        sum += one;
      }
    }
    return sum;
  }

  private Map<ByteBuffer, Long> keysOf(int family) {
    return left.computeIfAbsent(family, id -> new HashMap<>());
  }

  private static CRC32C begin(CachedFamily family, ByteSpan key) {
    CRC32C sum = new CRC32C();
    ByteBuffer head = ByteBuffer.allocate(6).order(ByteOrder.LITTLE_ENDIAN);
    sum.update(head.putShort((short) family.id).putInt(key.length).array());
    sum.update(key.toArray());
    return sum;
  }
}
