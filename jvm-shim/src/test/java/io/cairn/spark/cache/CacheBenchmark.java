package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.MemoryPool;
import io.cairn.spark.protocol.BatchWriter;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.FrameKind;
import io.cairn.spark.protocol.Frames;
import io.cairn.spark.protocol.PendingRows;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;
import io.cairn.spark.protocol.WriteBlock;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Locale;
import java.util.Random;
import org.apache.spark.unsafe.Platform;

/**
 * Speed of the cache without an engine: {@code java -cp ... io.cairn.spark.cache.CacheBenchmark
 * [keys]}. Keys of 17 bytes (a version byte and a row of one long), values of 32 bytes in a row,
 * batches of 100,000. Each figure is the median of the rounds, in CPU time of the one thread.
 */
public final class CacheBenchmark {
  private static final int BATCH = 100_000;
  private static final int KEY_BYTES = 17;
  private static final int VALUE_BYTES = 40;

  private final int keys;
  private final byte[] key = new byte[KEY_BYTES];
  private final byte[] value = new byte[VALUE_BYTES];
  private final ByteSpan keySpan = new ByteSpan(key);
  private final ByteSpan valueSpan = new ByteSpan(value);
  private final ByteSpan found = new ByteSpan();
  private final StateCache cache;
  private long version;
  private long check;

  private CacheBenchmark(int keys) {
    this.keys = keys;
    cache = new StateCache(new MemoryPool(2L << 30));
    cache.reset(0, "v0", true);
    cache.defineFamily(0, false, false);
    cache.defineFamily(1, true, false);
  }

  public static void main(String[] args) {
    int keys = args.length > 0 ? Integer.parseInt(args[0]) : 1_000_000;
    CacheBenchmark benchmark = new CacheBenchmark(keys);
    report("bulk load", keys, benchmark.load(0));
    report("bulk load, ordered", keys, benchmark.load(1));
    StateCache.Stats stats = benchmark.cache.stats();
    System.out.printf(
        Locale.ROOT,
        "%-24s %10.1f bytes a key (two families)%n",
        "heap accounted",
        (double) stats.bytes() / stats.entries());
    benchmark.rounds("upserts", BATCH, 21, () -> benchmark.upserts(0));
    benchmark.rounds("upserts, ordered", BATCH, 11, () -> benchmark.upserts(1));
    benchmark.rounds("reads", BATCH * 10, 9, () -> benchmark.reads());
    benchmark.rounds("scan", keys, 9, () -> benchmark.scan(false));
    benchmark.rounds("scan over 100k writes", keys, 9, () -> benchmark.scan(true));
    benchmark.rounds("ordered full range", keys, 9, () -> benchmark.range());
    benchmark.rounds("short ranges (10 rows)", BATCH, 9, () -> benchmark.ranges());
    benchmark.rounds("1,000 puts, committed", 1_000, 51, () -> benchmark.smallBatch());
    System.out.println("check " + benchmark.check);
  }

  /** CPU time of this thread: without that of other processes and of the garbage collector. */
  private static long nanos() {
    return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
  }

  private interface Round {
    long nanos();
  }

  private void rounds(String name, int rows, int count, Round round) {
    long[] nanos = new long[count];
    for (int i = 0; i < count; i++) {
      nanos[i] = round.nanos();
    }
    Arrays.sort(nanos);
    report(name, rows, nanos[count / 2]);
  }

  private static void report(String name, int rows, long nanos) {
    System.out.printf(
        Locale.ROOT, "%-24s %10.2f M rows/s %10.3f ms%n", name, rows * 1e3 / nanos, nanos / 1e6);
  }

  private void setKey(long n) {
    // Big-endian, so that key order is number order, as with a range encoder.
    Platform.putLong(key, Bytes.ARRAY + 9, Long.reverseBytes(n));
  }

  private void put(CacheSession session, int family, long n) {
    setKey(n);
    Platform.putLong(value, Bytes.ARRAY + 8, n);
    session.put(family, keySpan, valueSpan, true);
  }

  private void commit(CacheSession session) {
    session.sendWrites();
    session.commit(++version, "v" + version);
  }

  private long load(int family) {
    long start = nanos();
    for (int from = 0; from < keys; from += BATCH) {
      CacheSession session = cache.begin(new SilentEngine());
      for (int n = from; n < Math.min(keys, from + BATCH); n++) {
        put(session, family, n);
      }
      commit(session);
    }
    return nanos() - start;
  }

  private long upserts(int family) {
    Random random = new Random(version);
    long start = nanos();
    CacheSession session = cache.begin(new SilentEngine());
    for (int i = 0; i < BATCH; i++) {
      long n = random.nextInt(keys);
      setKey(n);
      if (session.get(family, keySpan, found)) {
        check += Platform.getLong(found.base, found.offset + 9);
      }
      put(session, family, n);
    }
    commit(session);
    return nanos() - start;
  }

  private long reads() {
    Random random = new Random(version);
    CacheSession session = cache.begin(new SilentEngine());
    long start = nanos();
    for (int i = 0; i < BATCH * 10; i++) {
      setKey(random.nextInt(keys));
      if (session.get(0, keySpan, found)) {
        check += Platform.getLong(found.base, found.offset + 9);
      }
    }
    long nanos = nanos() - start;
    session.abort();
    return nanos;
  }

  private long scan(boolean overWrites) {
    CacheSession session = cache.begin(new SilentEngine());
    for (int i = 0; overWrites && i < BATCH; i++) {
      put(session, 0, i * 7L % keys);
    }
    long start = nanos();
    drain(session.scan(0), keys);
    long nanos = nanos() - start;
    session.abort();
    return nanos;
  }

  private long range() {
    CacheSession session = cache.begin(new SilentEngine());
    long start = nanos();
    drain(session.range(1, null, null), keys);
    long nanos = nanos() - start;
    session.abort();
    return nanos;
  }

  private long ranges() {
    Random random = new Random(version);
    CacheSession session = cache.begin(new SilentEngine());
    long start = nanos();
    for (int i = 0; i < BATCH / 10; i++) {
      long n = random.nextInt(keys - 10);
      setKey(n);
      byte[] from = key.clone();
      setKey(n + 10);
      drain(session.range(1, from, key.clone()), 10);
    }
    long nanos = nanos() - start;
    session.abort();
    return nanos;
  }

  private void drain(RowCursor cursor, int expected) {
    int rows = 0;
    while (cursor.next()) {
      rows++;
      check +=
          Platform.getLong(cursor.key.base, cursor.key.offset + 9)
              + Platform.getLong(cursor.value.base, cursor.value.offset + 9);
    }
    cursor.close();
    if (rows != expected) {
      throw new IllegalStateException(rows + " rows instead of " + expected);
    }
  }

  private long smallBatch() {
    Random random = new Random(version);
    long start = nanos();
    CacheSession session = cache.begin(new SilentEngine());
    for (int i = 0; i < 1_000; i++) {
      put(session, 0, random.nextInt(keys));
    }
    commit(session);
    return nanos() - start;
  }

  /** Makes frames of writes, which it drops, and refuses requests. */
  private static final class SilentEngine implements EngineSource {
    private final BatchWriter frames = new BatchWriter();

    @Override
    public RowPage get(int family, byte[][] keys, int count, long requireApplied) {
      throw new IllegalStateException("the cache requested keys");
    }

    @Override
    public RowPage scan(ScanRequest request, long requireApplied) {
      throw new IllegalStateException("the cache requested a page");
    }

    @Override
    public PendingRows startScan(ScanRequest request, long requireApplied) {
      return () -> scan(request, requireApplied);
    }

    @Override
    public PendingRows startGet(int family, byte[][] keys, int count, long requireApplied) {
      return () -> get(family, keys, count, requireApplied);
    }

    @Override
    public PendingRows startRanges(
        int family, byte[][] from, byte[][] to, int count, long requireApplied) {
      throw new UnsupportedOperationException();
    }

    @Override
    public RuntimeException rowTooLarge(long bytes) {
      return new IllegalArgumentException("a row of " + bytes + " bytes");
    }

    @Override
    public void write(WriteBlock block, boolean isSpill) {
      Frames.writes(frames, block);
      frames.finish(FrameKind.WRITES, 1, 1, 0);
    }

    @Override
    public long appliedThrough() {
      return 0;
    }
  }
}
