package io.cairn.spark.bytes;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.Arrays;
import org.junit.jupiter.api.Test;

class BytesTest {
  @Test
  void orderIsByUnsignedBytesWithPrefixesFirst() {
    byte[][] keys = {
      {},
      {0},
      {0, 0},
      {1},
      {1, 2, 3, 4, 5, 6, 7, 8},
      {1, 2, 3, 4, 5, 6, 7, 8, 0},
      {127},
      {-128},
      {-1},
      {-1, -1}
    };
    for (byte[] a : keys) {
      for (byte[] b : keys) {
        int expected = Integer.signum(Arrays.compareUnsigned(a, b));
        assertEquals(expected, Integer.signum(Bytes.compare(new ByteSpan(a), new ByteSpan(b))));
      }
    }
  }

  @Test
  void theSuccessorOfAPrefixIsAboveAllItsKeys() {
    assertArrayEquals(new byte[] {1, 3}, Bytes.successor(new byte[] {1, 2}));
    assertArrayEquals(new byte[] {2}, Bytes.successor(new byte[] {1, -1, -1}));
    assertNull(Bytes.successor(new byte[] {-1, -1}));
    assertNull(Bytes.successor(new byte[0]));
  }

  @Test
  void copiesOfAnyLengthAreEqual() {
    byte[] from = new byte[200];
    for (int i = 0; i < from.length; i++) {
      from[i] = (byte) (7 * i);
    }
    ByteSpan span = new ByteSpan();
    for (int length = 0; length < 150; length++) {
      span.set(from, Bytes.ARRAY + 3, length);
      byte[] to = new byte[200];
      Bytes.copy(span, to, Bytes.ARRAY + 5);
      assertArrayEquals(span.toArray(), Arrays.copyOfRange(to, 5, 5 + length));
      assertEquals(0, to[5 + length]);
      assertEquals(Bytes.hash(span), Bytes.hash(new ByteSpan(span.toArray())));
    }
  }
}
