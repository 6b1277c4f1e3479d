package io.cairn.spark.bytes;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertSame;

import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;

class KeySortTest {
  @Test
  void theOrderIsThatOfUnsignedBytes() {
    Random random = new Random(5);
    for (int round = 0; round < 2_000; round++) {
      byte[][] keys = new byte[random.nextInt(200)][];
      int letters = 1 + random.nextInt(256);
      int longest = random.nextInt(24);
      byte[] prefix = new byte[random.nextInt(12)];
      random.nextBytes(prefix);
      for (int i = 0; i < keys.length; i++) {
        int shared = random.nextInt(4) == 0 ? random.nextInt(prefix.length + 1) : prefix.length;
        keys[i] = Arrays.copyOf(prefix, shared + random.nextInt(longest + 1));
        for (int at = shared; at < keys[i].length; at++) {
          keys[i][at] = (byte) -random.nextInt(letters);
        }
      }
      byte[][] expected = keys.clone();
      Arrays.sort(expected, Arrays::compareUnsigned);
      KeySort.sort(keys, keys.length);
      for (int i = 0; i < keys.length; i++) {
        assertArrayEquals(expected[i], keys[i], "round " + round + ", key " + i);
      }
    }
  }

  @Test
  void keysFromTheCountOnStayInTheirPlaces() {
    byte[][] keys = new byte[100][];
    for (int i = 0; i < keys.length; i++) {
      keys[i] = new byte[] {(byte) (100 - i)};
    }
    byte[][] before = keys.clone();
    KeySort.sort(keys, 60);
    for (int i = 0; i < 60; i++) {
      assertSame(before[59 - i], keys[i]);
    }
    for (int i = 60; i < keys.length; i++) {
      assertSame(before[i], keys[i]);
    }
  }
}
