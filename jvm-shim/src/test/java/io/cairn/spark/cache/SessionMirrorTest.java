package io.cairn.spark.cache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.cache.memory.MemoryPool;
import java.nio.file.Path;
import java.util.HexFormat;
import org.junit.jupiter.api.Test;

/** The digest of what a session has left is the one that the engine computes. */
class SessionMirrorTest {
  private final SessionMirror mirror = SessionMirror.ifAssertionsAreEnabled();
  private final StateCache cache = new StateCache(new MemoryPool(1 << 20));

  private CachedFamily family(int id, boolean isMulti) {
    cache.defineFamily(id, false, isMulti);
    return cache.committed.families.get(id);
  }

  private static ByteSpan span(JsonNode hex) {
    return new ByteSpan(HexFormat.of().parseHex(hex.asText()));
  }

  /** {@code test_vectors.py} reads the same vector. */
  @Test
  void theDigestIsThatOfTheEngine() throws Exception {
    Path file = Path.of(System.getProperty("cairn.test.root"), "spec/vectors/session_digest.json");
    JsonNode vector = new ObjectMapper().readTree(file.toFile());
    for (JsonNode row : vector.get("left")) {
      boolean isList = row.get("value").isNull();
      CachedFamily family = family(row.get("cf").asInt(), isList);
      if (isList) {
        mirror.append(family, span(row.get("key")));
      } else {
        mirror.put(family, span(row.get("key")), span(row.get("value")), false);
      }
    }

    assertEquals(vector.get("digest").asLong(), mirror.digest());
  }

  @Test
  void keysThatWereRemovedOrDroppedDoNotCount() {
    CachedFamily kept = family(1, false);
    ByteSpan key = new ByteSpan(new byte[] {1});
    ByteSpan value = new ByteSpan(new byte[] {2});
    mirror.put(kept, key, value, true);
    long digest = mirror.digest();
    mirror.put(kept, key, value, false);
    assertNotEquals(digest, mirror.digest(), "the value has a byte more if it is versioned");
    mirror.put(kept, value, value, false);
    mirror.put(kept, key, value, true);
    mirror.remove(kept, value);
    mirror.put(family(2, false), key, value, false);
    mirror.drop(2);

    assertEquals(digest, mirror.digest());
  }
}
