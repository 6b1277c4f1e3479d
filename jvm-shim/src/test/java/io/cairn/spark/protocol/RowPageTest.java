package io.cairn.spark.protocol;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class RowPageTest {
  /** The arrays of a session grow with its largest page; each scan keeps copies of small ones. */
  @Test
  void aCopyHasTheRowsAlone() {
    RowPage page = new RowPage();
    page.reset(1000, 1 << 20);
    page.reset(2, 20);
    page.data[3] = 7;
    page.keyOffset[0] = 0;
    page.keyLength[0] = 4;
    page.valueOffset[0] = 4;
    page.valueLength[0] = 5;
    page.keyOffset[1] = 9;
    page.keyLength[1] = 1;
    page.valueLength[1] = -1;
    page.more = true;

    RowPage copy = page.copy();
    page.data[3] = 0;

    assertEquals(10, copy.data.length);
    assertEquals(2, copy.origin.length);
    assertEquals(2, copy.count);
    assertEquals(true, copy.more);
    assertArrayEquals(new byte[] {0, 0, 0, 7}, copy.keyBytes(0));
    assertEquals(-1, copy.valueLength[1]);
  }
}
