package io.cairn.spark.protocol;

import java.util.Arrays;

/** The bytes of a frame: regions of arrays, to be sent one after the other. */
public final class FrameBytes {
  private byte[][] arrays = new byte[1][];
  private int[] starts = new int[1];
  private int[] lengths = new int[1];
  private int count;

  /** One region. */
  public static FrameBytes of(byte[] array, int start, int length) {
    FrameBytes bytes = new FrameBytes();
    bytes.add(array, start, length);
    return bytes;
  }

  void clear() {
    Arrays.fill(arrays, 0, count, null);
    count = 0;
  }

  void add(byte[] array, int start, int length) {
    if (count == arrays.length) {
      arrays = Arrays.copyOf(arrays, 2 * count);
      starts = Arrays.copyOf(starts, 2 * count);
      lengths = Arrays.copyOf(lengths, 2 * count);
    }
    set(count++, array, start, length);
  }

  void set(int region, byte[] array, int start, int length) {
    arrays[region] = array;
    starts[region] = start;
    lengths[region] = length;
  }

  /** Number of regions. */
  public int count() {
    return count;
  }

  public byte[] array(int region) {
    return arrays[region];
  }

  public int start(int region) {
    return starts[region];
  }

  public int length(int region) {
    return lengths[region];
  }

  /** Bytes of all regions. */
  public long length() {
    long total = 0;
    for (int region = 0; region < count; region++) {
      total += lengths[region];
    }
    return total;
  }

  /** Copies all regions into one array. */
  public byte[] toArray() {
    byte[] whole = new byte[Math.toIntExact(length())];
    int at = 0;
    for (int region = 0; region < count; region++) {
      System.arraycopy(arrays[region], starts[region], whole, at, lengths[region]);
      at += lengths[region];
    }
    return whole;
  }
}
