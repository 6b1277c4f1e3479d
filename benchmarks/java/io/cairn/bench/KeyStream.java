package io.cairn.bench;

import java.util.Arrays;
import java.util.SplittableRandom;

/** Generates the keys of a batch before its time is taken; {@link #keyOf} numbers the keys. */
abstract class KeyStream {

  /** Exponent of the Zipf workload: a few keys have most of the rows. */
  private static final double ZIPF_EXPONENT = 1.0;

  /** The next {@code count} keys. */
  abstract long[] next(int count);

  /** Key number {@code index}: consecutive keys are spread over all longs, without collisions. */
  static long keyOf(long index) {
    long mixed = (index ^ (index >>> 32)) * 0x9E3779B97F4A7C15L;
    return mixed ^ (mixed >>> 29);
  }

  /** Keys {@code from}, {@code from + 1}, ... of the state. */
  static KeyStream sequential(long from) {
    return new KeyStream() {
      private long index = from;

      @Override
      long[] next(int count) {
        long[] keys = new long[count];
        Arrays.setAll(keys, i -> keyOf(index + i));
        index += count;
        return keys;
      }
    };
  }

  /** Each of the first {@code keyCount} keys equally likely. */
  static KeyStream uniform(int keyCount, long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    return new KeyStream() {
      @Override
      long[] next(int count) {
        long[] keys = new long[count];
        Arrays.setAll(keys, i -> keyOf(random.nextInt(keyCount)));
        return keys;
      }
    };
  }

  /** Key of rank {@code r} with probability proportional to {@code 1 / r}. */
  static KeyStream zipf(int keyCount, long seed) {
    double[] cumulative = new double[keyCount];
    double sum = 0;
    for (int i = 0; i < keyCount; i++) {
      sum += 1 / Math.pow(i + 1.0, ZIPF_EXPONENT);
      cumulative[i] = sum;
    }
    double total = sum;
    SplittableRandom random = new SplittableRandom(seed);
    return new KeyStream() {
      @Override
      long[] next(int count) {
        long[] keys = new long[count];
        for (int i = 0; i < count; i++) {
          int rank = Arrays.binarySearch(cumulative, random.nextDouble() * total);
          keys[i] = keyOf(Math.min(rank < 0 ? -rank - 1 : rank, keyCount - 1));
        }
        return keys;
      }
    };
  }

  /** Half of the keys are known, the other half are new, in random order. */
  static KeyStream halfNew(int keyCount, long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    return new KeyStream() {
      private long fresh = keyCount;

      @Override
      long[] next(int count) {
        long[] keys = new long[count];
        for (int i = 0; i < count; i++) {
          keys[i] = keyOf(random.nextBoolean() ? random.nextInt(keyCount) : fresh++);
        }
        return keys;
      }
    };
  }
}
