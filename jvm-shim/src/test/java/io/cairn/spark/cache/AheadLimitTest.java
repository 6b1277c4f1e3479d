package io.cairn.spark.cache;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class AheadLimitTest {
  private final AheadLimit limit = new AheadLimit();

  @Test
  void requestsThatPayGrowToTheirBound() {
    assertEquals(64, limit.next(0, 0));
    assertEquals(128, limit.next(64, 4));
    for (int rows = 256; rows < 4096; rows *= 2) {
      assertEquals(rows, limit.next(100, 100));
    }
    assertEquals(4096, limit.next(100, 100));
    assertEquals(4096, limit.next(100, 100));
  }

  /** Reads of one row in many must not read all of them. */
  @Test
  void afterAVainRequestReadsPassAndAfterTheNextOneTwiceAsMany() {
    limit.next(0, 0);
    limit.next(64, 64);

    assertEquals(0, limit.next(128, 7));
    assertEquals(32, pause());
    assertEquals(0, limit.next(64, 3));
    assertEquals(64, pause());
    limit.next(64, 4);
    assertEquals(0, limit.next(128, 0));
    assertEquals(32, pause());
  }

  /** The reads that request nothing; the one after them requests few rows. */
  private int pause() {
    int reads = 0;
    int rows;
    while ((rows = limit.next(0, 0)) == 0) {
      reads++;
    }
    assertEquals(64, rows);
    return reads;
  }
}
