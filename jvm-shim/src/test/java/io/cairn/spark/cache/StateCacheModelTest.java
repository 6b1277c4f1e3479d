package io.cairn.spark.cache;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import io.cairn.spark.cache.memory.MemoryPool;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;

/**
 * Random sessions of stores that share a small pool, compared with one map per version and family.
 */
class StateCacheModelTest {
  private static final int PLAIN = 0;
  private static final int ORDERED = 1;
  private static final int LISTS = 2;
  private static final int ORDERED_LISTS = 5;
  private static final int[] FAMILIES = {PLAIN, ORDERED, LISTS, ORDERED_LISTS};
  private static final int[] ORDERED_FAMILIES = {ORDERED, ORDERED_LISTS};
  private static final int FIRST_CREATED = 10;

  /** {@code make test-all} runs as many times the seeds. */
  private static final int TIMES = Integer.getInteger("cairn.test.histories", 1);

  private static final long FLOOR_BYTES = 16_384;
  private static final int MAX_SCANS = 6;

  /** Of writes that were spilled, and that an open scan sees. */
  private static final long SCAN_BYTES = 4_096;

  @Test
  void sameRowsAsAMapWithAPoolWithoutSpace() {
    runSeeds(0, 30, 3_000);
  }

  @Test
  void sameRowsAsAMapWithATinyPool() {
    runSeeds(1_000, 1_030, 30_000);
  }

  @Test
  void sameRowsAsAMapWithAPoolOfHalfTheState() {
    assertTrue(runSeeds(2_000, 2_040, 160_000) > 20, "few refills");
  }

  /** Spills and evictions cost completeness, and there is memory to get it back. */
  @Test
  void sameRowsAsAMapWithAPoolOfTheState() {
    assertTrue(runSeeds(4_000, 4_040, 300_000) > 40, "few refills");
  }

  @Test
  void sameRowsAsAMapWithMemoryForAll() {
    assertTrue(runSeeds(3_000, 3_040, 64_000_000) > 40, "few refills");
  }

  /** What the rows of a commit say of their keys is enough to count all keys after it. */
  @Test
  void theEngineCountsTheKeysOfAMap() {
    long counted = 0;
    for (long poolBytes : new long[] {30_000, 120_000, 64_000_000}) {
      for (int seed = 6_000; seed < 6_000 + 12 * TIMES; seed++) {
        try {
          Run run = new Run(seed, new MemoryPool(poolBytes));
          run.sessions(25);
          assertEquals(0, run.pool.accountedBytes(), "bytes left after all stores are closed");
          for (Store store : run.stores) {
            counted += store.engine.countedFamilies;
          }
        } catch (Throwable failure) {
          throw new AssertionError("seed " + seed + ", pool " + poolBytes, failure);
        }
      }
    }
    assertTrue(counted > 500, "few counts were compared: " + counted);
  }

  /** Stores of several tasks evict each other's entries while they are idle. */
  @Test
  void sameRowsAsAMapWhenTwoThreadsShareAPool() throws Exception {
    MemoryPool pool = new MemoryPool(150_000);
    ExecutorService threads = Executors.newFixedThreadPool(2);
    List<Future<?>> runs = new ArrayList<>();
    for (int thread = 0; thread < 2; thread++) {
      int seed = 5_000 + thread;
      runs.add(threads.submit(() -> new Run(seed, pool).sessions(250)));
    }
    try {
      for (Future<?> run : runs) {
        run.get();
      }
    } finally {
      threads.shutdownNow();
    }
    assertEquals(0, pool.accountedBytes());
  }

  /** Returns the number of steps in which a store became complete. */
  private static long runSeeds(int from, int to, long poolBytes) {
    long refills = 0;
    for (int seed = from; seed < from + (to - from) * TIMES; seed++) {
      try {
        Run run = new Run(seed, new MemoryPool(poolBytes));
        run.sessions(25);
        assertEquals(0, run.pool.accountedBytes(), "bytes left after all stores are closed");
        for (Store store : run.stores) {
          refills += store.refillsOnDemand;
        }
      } catch (Throwable failure) {
        throw new AssertionError("seed " + seed + ", pool " + poolBytes, failure);
      }
    }
    return refills;
  }

  private static boolean ordered(int family) {
    int kind = kind(family);
    return kind == ORDERED || kind == ORDERED_LISTS;
  }

  private static boolean multi(int family) {
    int kind = kind(family);
    return kind == LISTS || kind == ORDERED_LISTS;
  }

  /** A family that a session created has one of the four kinds. */
  private static int kind(int family) {
    return family < FIRST_CREATED ? family : FAMILIES[family % FAMILIES.length];
  }

  /** One seed: some stores with one pool. */
  private static final class Run {
    final Random random;
    final MemoryPool pool;
    final List<Store> stores = new ArrayList<>();

    /** Scans are left open: until a garbage collection, they keep writes. */
    final boolean abandonsScans;

    Run(int seed, MemoryPool pool) {
      random = new Random(seed);
      this.pool = pool;
      abandonsScans = random.nextInt(3) == 0;
    }

    void sessions(int count) {
      for (int i = 0; i < 1 + random.nextInt(3); i++) {
        stores.add(new Store(this));
      }
      for (int session = 0; session < count; session++) {
        stores.get(random.nextInt(stores.size())).session();
        checkBound();
      }
      for (Store store : stores) {
        store.cache.close();
      }
    }

    void checkBound() {
      long bound = pool.limitBytes() + FLOOR_BYTES + MAX_SCANS * SCAN_BYTES;
      assertTrue(
          abandonsScans || pool.peakBytes() <= bound,
          "peak " + pool.peakBytes() + " of " + pool.limitBytes());
    }
  }

  private static final class Store {
    final Run run;
    final Random random;
    final MapEngine engine;
    final StateCache cache;
    Map<Integer, TreeMap<byte[], byte[]>> model;

    /** The families of each version. */
    final List<Set<Integer>> familiesAt = new ArrayList<>();

    int nextFamily = FIRST_CREATED;
    final List<ModelScan> scans = new ArrayList<>();
    final List<Runnable> requests = new ArrayList<>();
    CacheSession session;
    int refillsOnDemand;
    int lastFamily;
    byte[] lastKey;

    Store(Run run) {
      this.run = run;
      this.random = run.random;
      this.engine = new MapEngine(random);
      engine.mostKeys = 1 + random.nextInt(8);
      engine.losesReplies = random.nextBoolean();
      this.cache = new StateCache(run.pool);
      cache.reset(0, "v0", true);
      Set<Integer> first = new HashSet<>();
      Arrays.stream(FAMILIES).forEach(first::add);
      familiesAt.add(first);
      define(0);
    }

    void define(long version) {
      for (int family : familiesAt.get((int) version)) {
        cache.defineFamily(family, ordered(family), multi(family));
      }
    }

    void session() {
      long version = engine.newest();
      if (random.nextInt(8) == 0) {
        version = Math.max(0, version - random.nextInt(3));
      }
      boolean reload = cache.version() != version || random.nextInt(5) == 0;
      if (reload) {
        engine.load(version);
        cache.reset(version, "v" + version, version == 0);
        define(version);
      } else {
        engine.begin(version);
      }
      session = cache.begin(engine);
      if (reload || random.nextInt(2) == 0) {
        refill();
      }
      model = new HashMap<>();
      for (int family : familiesAt.get((int) version)) {
        model.put(family, new TreeMap<>(engine.state(version, family)));
        // Within the session: an idle store may lose entries to the other thread at any time.
        if (CacheFixture.isComplete(cache, family)) {
          assertEquals(
              model.get(family).size(),
              CacheFixture.entries(cache, family),
              "entries of a complete family");
        }
      }
      lastKey = null;
      int steps = random.nextInt(3) == 0 ? 20 : 400;
      for (int i = 0; i < steps; i++) {
        boolean wasComplete = cache.committed.families.areComplete();
        step();
        refillsOnDemand += !wasComplete && cache.committed.families.areComplete() ? 1 : 0;
        run.checkBound();
      }
      finish(version);
      if (cache.version() >= 0 && random.nextInt(4) == 0) {
        engine.begin(cache.version());
        session = cache.begin(engine);
        refill();
        session.abort();
      }
    }

    /** Reads what the cache lacks, or only some pages of it; sometimes the engine fails. */
    void refill() {
      if (random.nextInt(2) == 0) {
        // Later steps refill, when their requests have cost enough.
        cache.committed.refills.policy.fewRows = random.nextInt(3) == 0 ? 1_000 : -200;
        cache.expectRows(random.nextInt(600), 1 + random.nextInt(200));
        session.refillOnDemand();
        return;
      }
      int[] pages = {random.nextInt(8)};
      boolean fails = random.nextInt(6) == 0;
      if (fails) {
        engine.mostScans = engine.scanRequests + random.nextInt(3);
      }
      try {
        CacheFixture.refillUntil(cache, () -> pages[0]-- == 0);
      } catch (IllegalStateException e) {
        assertTrue(fails && e.getMessage().equals("worker lost"), e.getMessage());
      } finally {
        engine.mostScans = Long.MAX_VALUE;
      }
    }

    void finish(long version) {
      if (random.nextBoolean()) {
        for (int family : model.keySet()) {
          checkAll(family);
        }
      }
      if (random.nextBoolean()) {
        scans.forEach(ModelScan::readToEnd);
      }
      scans.clear();
      if (random.nextBoolean()) {
        // A request of an ended session may be finished in a later one.
        requests.clear();
      }
      if (random.nextInt(4) == 0) {
        session.abort();
        assertEquals(version, cache.version());
        return;
      }
      long expectedRows = session.expectedRows();
      session.sendWrites();
      if (random.nextInt(8) == 0) {
        // The commit failed.
        session.abort();
        assertEquals(version, cache.version());
        return;
      }
      if (!session.hasSpilled() && random.nextInt(6) == 0) {
        // The engine lost the writes of the session, and received them again.
        engine.begin(version);
        session.sendWrites();
      }
      assertEquals(engine.rowsOfCommit(), expectedRows, "rows of the commit");
      engine.commit();
      long next = engine.newest();
      for (int family : model.keySet()) {
        assertSame(model.get(family), engine.state(next, family));
      }
      for (int family = 0; family < nextFamily; family++) {
        if (!model.containsKey(family)) {
          assertTrue(engine.state(next, family).isEmpty(), "rows of a family that was dropped");
        }
      }
      while (familiesAt.size() > next) {
        familiesAt.remove(familiesAt.size() - 1);
      }
      familiesAt.add(new HashSet<>(model.keySet()));
      session.commit(next, "v" + next);
      assertEquals(next, cache.version());
    }

    void assertSame(NavigableMap<byte[], byte[]> expected, NavigableMap<byte[], byte[]> actual) {
      assertEquals(expected.size(), actual.size());
      expected.forEach((key, value) -> assertArrayEquals(value, actual.get(key)));
    }

    void checkAll(int family) {
      ModelScan scan =
          random.nextBoolean() && ordered(family)
              ? openRange(family, null, null)
              : openWalk(family);
      scan.readToEnd();
      assertEquals(model.get(family).size(), scan.seenCount());
    }

    ModelScan openWalk(int family) {
      return new ModelScan(session.scan(family), family, false, null, null, model.get(family));
    }

    ModelScan openRange(int family, byte[] from, byte[] to) {
      return new ModelScan(
          session.range(family, from, to), family, true, from, to, model.get(family));
    }

    byte[] key() {
      int n = random.nextInt(150);
      byte[] key = new byte[1 + n % 37];
      new Random(n / 3 * 31L).nextBytes(key);
      key[key.length - 1] = (byte) n;
      return key;
    }

    byte[] value() {
      byte[] value = new byte[random.nextInt(30) == 0 ? random.nextInt(3000) : random.nextInt(60)];
      random.nextBytes(value);
      return value;
    }

    void step() {
      if (lastKey == null || random.nextInt(3) > 0) {
        lastFamily = anyFamily();
        lastKey = key();
      }
      // Often the key of the last step, as an array of its own: the cache remembers the last key.
      int family = lastFamily;
      byte[] key = lastKey.clone();
      switch (random.nextInt(24)) {
        case 0, 1, 2, 3 -> checkGet(family, key);
        case 4 ->
            assertEquals(
                model.get(family).containsKey(key), session.exists(family, new ByteSpan(key)));
        case 5, 6, 7, 8 -> put(family, key);
        case 9, 10 -> append(family, key);
        case 11, 12 -> remove(family, key);
        case 13 -> open(family);
        case 14 -> advance();
        case 15 -> {
          if (ordered(family) && random.nextBoolean()) {
            startPrefixes(family);
          } else {
            startPrefetch(family);
          }
        }
        case 16 -> finishPrefetch();
        case 17 -> writeMany(family);
        case 18 -> readInOrder(family);
        case 19 -> removeScanned(family);
        case 20 -> readIndexed(family);
        case 21 -> {
          if (random.nextInt(6) == 0) {
            withdraw(family);
          }
        }
        case 22 -> {
          if (random.nextInt(6) == 0) {
            changeFamilies();
          }
        }
        default -> prefetch(family);
      }
    }

    void checkGet(int family, byte[] key) {
      ByteSpan out = new ByteSpan();
      byte[] expected = model.get(family).get(key);
      boolean found = session.get(family, new ByteSpan(key), out);
      assertEquals(
          expected != null, found, "presence of " + Arrays.toString(key) + " in family " + family);
      if (found) {
        assertArrayEquals(expected, out.toArray());
      }
    }

    void set(int family, byte[] key, byte[] value) {
      if (value == null) {
        model.get(family).remove(key);
      } else {
        model.get(family).put(key, value);
      }
    }

    void put(int family, byte[] key) {
      byte[] value = value();
      if (random.nextBoolean()) {
        session.put(family, new ByteSpan(key), new ByteSpan(value), false);
        set(family, key, value);
      } else {
        session.put(family, new ByteSpan(key), new ByteSpan(value), true);
        set(family, key, MapEngine.join(new byte[1], value));
      }
    }

    /** Writes without a read in between: they enter the write buffer in groups. */
    void writeMany(int family) {
      for (int left = random.nextInt(40); left > 0; left--) {
        byte[] key = key();
        change(family, key);
      }
    }

    void change(int family, byte[] key) {
      switch (random.nextInt(4)) {
        case 0 -> remove(family, key);
        case 1 -> append(family, key);
        default -> put(family, key);
      }
    }

    /**
     * Removes what the session has added, and perhaps adds and removes more: a spill then has
     * deletes of absent keys alone, of which the engine receives none.
     */
    void withdraw(int family) {
      boolean fromAll = random.nextBoolean();
      for (int from : List.copyOf(model.keySet())) {
        if (fromAll || from == family) {
          for (byte[] key : List.copyOf(model.get(from).keySet())) {
            if (!engine.state(engine.base, from).containsKey(key)) {
              remove(from, key);
            }
          }
        }
      }
      for (int left = random.nextInt(120); left > 0; left--) {
        byte[] key = key();
        if (!engine.state(engine.base, family).containsKey(key)) {
          if (multi(family) && random.nextBoolean()) {
            append(family, key);
          } else {
            put(family, key);
          }
          remove(family, key);
        }
      }
    }

    /** Drops a family with all its rows, or creates one. Its id is never used again. */
    void changeFamilies() {
      if (model.size() > FAMILIES.length && random.nextBoolean()) {
        List<Integer> created = new ArrayList<>(model.keySet());
        created.removeIf(family -> family < FIRST_CREATED);
        int dropped = created.get(random.nextInt(created.size()));
        requests.clear();
        session.dropFamily(dropped);
        model.remove(dropped);
        lastKey = null;
      } else if (model.size() < FAMILIES.length + 3) {
        int family = nextFamily++;
        session.createFamily(family, ordered(family), multi(family));
        model.put(family, new TreeMap<>(MapEngine.UNSIGNED));
      }
    }

    int anyFamily() {
      List<Integer> families = new ArrayList<>(model.keySet());
      return families.get(random.nextInt(families.size()));
    }

    /** Reads present and absent keys in order; writes in between may spill what was read ahead. */
    void readInOrder(int family) {
      TreeMap<byte[], byte[]> keys = new TreeMap<>(MapEngine.UNSIGNED);
      keys.putAll(model.get(family));
      for (int left = random.nextInt(30); left > 0; left--) {
        keys.put(key(), new byte[0]);
      }
      int part = 1 + random.nextInt(4);
      boolean writes = random.nextBoolean();
      byte[] before = null;
      for (byte[] key : keys.keySet()) {
        if (random.nextInt(part) > 0) {
          continue;
        }
        checkGet(family, key);
        if (before != null && random.nextInt(20) == 0) {
          checkGet(family, before);
        }
        if (writes && random.nextInt(4) == 0) {
          // Of a key that was passed, or of any: its row may have been read ahead.
          byte[] changed = random.nextBoolean() ? key : key();
          if (random.nextBoolean()) {
            put(family, changed);
          } else {
            remove(family, changed);
          }
        }
        before = key;
      }
    }

    /** Removes rows behind a scan, as Spark does with old ones; perhaps it writes others too. */
    void removeScanned(int family) {
      ModelScan scan =
          ordered(family) && random.nextBoolean()
              ? openRange(family, null, null)
              : openWalk(family);
      boolean changes = random.nextInt(3) == 0;
      for (int left = random.nextInt(100); left > 0 && scan.step(); left--) {
        if (random.nextInt(3) == 0) {
          remove(family, scan.cursor.key.toArray());
        }
        if (changes && random.nextInt(4) == 0) {
          change(family, key());
        }
      }
      scan.cursor.close();
    }

    void append(int family, byte[] key) {
      if (!multi(family)) {
        return;
      }
      byte[] value = value();
      session.append(family, new ByteSpan(key), new ByteSpan(value));
      byte[] before = model.get(family).get(key);
      set(family, key, before == null ? value : MapEngine.join(before, value));
    }

    void remove(int family, byte[] key) {
      session.remove(family, new ByteSpan(key));
      set(family, key, null);
    }

    void open(int family) {
      if (scans.size() == MAX_SCANS) {
        leave(scans.remove(random.nextInt(scans.size())));
      }
      if (ordered(family) && random.nextInt(3) == 0) {
        byte[] prefix = prefix();
        scans.add(openRange(family, prefix, Bytes.successor(prefix)));
      } else if (ordered(family) && random.nextBoolean()) {
        scans.add(
            openRange(
                family,
                random.nextInt(3) == 0 ? null : key(),
                random.nextInt(3) == 0 ? null : key()));
      } else {
        scans.add(openWalk(family));
      }
    }

    void leave(ModelScan scan) {
      if (!run.abandonsScans || random.nextBoolean()) {
        scan.cursor.close();
      }
    }

    void advance() {
      if (scans.isEmpty()) {
        return;
      }
      ModelScan scan = scans.get(random.nextInt(scans.size()));
      int rows = random.nextInt(4) == 0 ? Integer.MAX_VALUE : random.nextInt(40);
      for (int i = 0; i < rows; i++) {
        if (!scan.step()) {
          scans.remove(scan);
          return;
        }
      }
    }

    private static byte[] named(byte[] row) {
      return row.length < 8
          ? null
          : MapEngine.join(Arrays.copyOfRange(row, 8, row.length), Arrays.copyOf(row, 8));
    }

    /** Reads the keys that the rows of an ordered family name as an index; writes some. */
    void readIndexed(int family) {
      int index = ORDERED_FAMILIES[random.nextInt(ORDERED_FAMILIES.length)];
      boolean writes = index != family && random.nextBoolean();
      session.followIndex(index, family, Store::named);
      ModelScan scan = openRange(index, random.nextInt(3) == 0 ? null : key(), null);
      for (int left = random.nextInt(80); left > 0 && scan.step(); left--) {
        byte[] named = named(scan.cursor.key.toArray());
        if (named == null) {
          continue;
        }
        if (writes && random.nextInt(3) == 0) {
          put(family, named);
        }
        checkGet(family, named);
        if (writes && random.nextInt(4) == 0) {
          remove(family, named);
        }
      }
      leave(scan);
    }

    void prefetch(int family) {
      byte[][] keys = new byte[random.nextInt(30)][];
      Set<String> names = new HashSet<>();
      int count = 0;
      for (int i = 0; i < keys.length; i++) {
        byte[] key = key();
        if (names.add(Arrays.toString(key))) {
          keys[count++] = key;
        }
      }
      session.prefetch(family, Arrays.copyOf(keys, count));
    }

    /** Requests keys, some twice; the reply is cached by a later step, or never. */
    void startPrefetch(int family) {
      byte[][] keys = new byte[random.nextInt(30)][];
      Arrays.setAll(keys, i -> key());
      if (session.prefetcher.isUseful(family)) {
        Prefetcher.Request request = session.prefetcher.start(family, keys, keys.length);
        if (request != null) {
          requests.add(request::finish);
        }
      }
    }

    byte[] prefix() {
      byte[] key = key();
      return Arrays.copyOf(key, Math.min(key.length, 1 + random.nextInt(2)));
    }

    /** Requests the rows of prefixes, some twice, some below others. */
    void startPrefixes(int family) {
      byte[][] prefixes = new byte[random.nextInt(60)][];
      Arrays.setAll(prefixes, i -> prefix());
      if (session.prefetcher.isUseful(family)) {
        Prefetcher.Request request =
            session.prefetcher.startPrefixes(family, prefixes, prefixes.length);
        if (request != null) {
          requests.add(request::finish);
        }
      }
    }

    void finishPrefetch() {
      if (!requests.isEmpty()) {
        requests.remove(random.nextInt(requests.size())).run();
      }
    }
  }
}
