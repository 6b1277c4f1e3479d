package io.cairn.spark.cache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.PendingRows;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;
import io.cairn.spark.protocol.WriteBlock;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;

/**
 * An engine over maps, one per version: it answers from the version that it has applied, which may
 * be an earlier one, and keeps the writes of the session apart.
 */
final class MapEngine implements EngineSource {
  static final Comparator<byte[]> UNSIGNED = Arrays::compareUnsigned;

  private record Write(byte op, byte[] value) {}

  private record Name(int family, ByteBuffer key) {
    private Name(WriteBlock block, int row) {
      this(block.family(row), ByteBuffer.wrap(block.key(row)));
    }
  }

  /** A row that was received. */
  private record Row(Name name, byte op, byte presence) {}

  private final Random random;
  private final List<Map<Integer, TreeMap<byte[], byte[]>>> versions = new ArrayList<>();
  private Map<Integer, TreeMap<byte[], Write>> writes = new HashMap<>();
  private final List<Row> received = new ArrayList<>();
  private boolean hasDropped;
  private boolean hasSpilled;
  private long applied;
  private final RowPage reply = new RowPage();

  /** Version on which the open session is based. */
  long base;

  long getRequests;
  long keysRequested;
  long scanRequests;
  long rowsScanned;
  long rows;
  long blocks;
  long spillBlocks;

  /** Writes of which the cache did not know whether their keys are committed. */
  long unknownPresences;

  /** Families whose keys were counted at a commit as the worker counts them. */
  long countedFamilies;

  /** Maximum number of keys per reply, as if values were large. */
  int mostKeys = Integer.MAX_VALUE;

  /** Some replies that are not awaited at once never come. */
  boolean losesReplies;

  /** Every write fails, as if the worker were lost. */
  boolean failsWrites;

  /** Every request of keys fails, as if the worker were lost. */
  boolean failsGets;

  /** No session can begin, as if the worker were lost. */
  boolean failsAtOnce;

  /** The number of pages after which scans fail, as if the worker were lost. */
  long mostScans = Long.MAX_VALUE;

  MapEngine(Random random) {
    this.random = random;
    versions.add(new HashMap<>());
  }

  long newest() {
    return versions.size() - 1;
  }

  NavigableMap<byte[], byte[]> state(long version, int family) {
    return versions.get((int) version).getOrDefault(family, new TreeMap<>(UNSIGNED));
  }

  /**
   * Begins a session on this version: later versions are dropped, and the database is at this one
   * or an earlier one.
   */
  void load(long version) {
    while (newest() > version) {
      versions.remove(versions.size() - 1);
    }
    applied = Math.min(applied, version);
    begin(version);
  }

  void begin(long version) {
    base = version;
    writes = new HashMap<>();
    received.clear();
    hasDropped = false;
    hasSpilled = false;
    if (random.nextInt(4) == 0) {
      applied = Math.max(applied, version - random.nextInt(3));
    }
  }

  /** The rows that were received, each key once, except deletes of absent keys. */
  long rowsOfCommit() {
    Set<Integer> dropped = new HashSet<>();
    received.stream()
        .filter(row -> row.op == WriteBlock.DROP_CF)
        .forEach(row -> dropped.add(row.name.family));
    long count = dropped.size();
    for (Row row : received) {
      boolean isCounted = row.op != WriteBlock.DELETE || row.presence != WriteBlock.MISSING;
      count += isCounted && !dropped.contains(row.name.family) ? 1 : 0;
    }
    return count;
  }

  /** How the rows that were received change the number of keys, as the worker computes it. */
  private long keysChanged(int family) {
    long change = 0;
    for (Row row : received) {
      if (row.name.family == family) {
        boolean before = row.presence == WriteBlock.PRESENT;
        boolean after = row.op != WriteBlock.DELETE;
        change += (after ? 1 : 0) - (before ? 1 : 0);
      }
    }
    return change;
  }

  private boolean knowsAllPresences() {
    return received.stream().allMatch(row -> row.presence != WriteBlock.UNKNOWN);
  }

  /** Commits the writes as the next version. */
  void commit() {
    if (!hasSpilled) {
      long names = received.stream().map(Row::name).distinct().count();
      assertEquals(received.size(), names, "a key was sent twice");
    }
    Map<Integer, TreeMap<byte[], byte[]>> next = new HashMap<>();
    versions.get((int) base).forEach((family, rows) -> next.put(family, new TreeMap<>(rows)));
    applyTo(next, writes);
    versions.add(next);
    if (!hasDropped && !hasSpilled && knowsAllPresences()) {
      for (int family : next.keySet()) {
        long keys = state(base, family).size() + keysChanged(family);
        assertEquals(next.get(family).size(), keys, "the number of keys that the worker counts");
        countedFamilies++;
      }
    }
  }

  private static void applyTo(
      Map<Integer, TreeMap<byte[], byte[]>> state, Map<Integer, TreeMap<byte[], Write>> changes) {
    changes.forEach(
        (family, rows) -> {
          TreeMap<byte[], byte[]> to = state.computeIfAbsent(family, f -> new TreeMap<>(UNSIGNED));
          rows.forEach((key, write) -> to.compute(key, (k, before) -> apply(write, before)));
        });
  }

  /** Reads a row; checks what it says of its committed key. */
  private Row row(WriteBlock block, int row) {
    Name name = new Name(block, row);
    byte presence = block.presence(row);
    boolean present = state(base, name.family).containsKey(block.key(row));
    if (presence == WriteBlock.UNKNOWN) {
      unknownPresences++;
    } else {
      assertEquals(
          present ? WriteBlock.PRESENT : WriteBlock.MISSING,
          presence,
          "presence of a committed key");
    }
    return new Row(name, block.op(row), presence);
  }

  private static byte[] apply(Write write, byte[] before) {
    if (write.op == WriteBlock.DELETE) {
      return null;
    }
    return write.op == WriteBlock.APPEND && before != null
        ? join(before, write.value)
        : write.value;
  }

  static byte[] join(byte[] a, byte[] b) {
    byte[] joined = Arrays.copyOf(a, a.length + b.length);
    System.arraycopy(b, 0, joined, a.length, b.length);
    return joined;
  }

  private NavigableMap<byte[], byte[]> answerFrom(int family, long requireApplied) {
    assertTrue(requireApplied <= base, "requires a version above the session's");
    applied = Math.max(applied, requireApplied);
    if (random.nextInt(8) == 0 && applied < base) {
      applied++;
    }
    return state(applied, family);
  }

  @Override
  public RowPage get(int family, byte[][] keys, int requested, long requireApplied) {
    return get(family, keys, requested, requireApplied, reply);
  }

  private RowPage get(int family, byte[][] keys, int requested, long requireApplied, RowPage into) {
    if (failsGets) {
      throw new IllegalStateException("worker lost");
    }
    int count = Math.min(requested, mostKeys);
    getRequests++;
    keysRequested += count;
    NavigableMap<byte[], byte[]> state = answerFrom(family, requireApplied);
    TreeMap<byte[], Write> spill = writes.getOrDefault(family, new TreeMap<>(UNSIGNED));
    List<byte[]> none = new ArrayList<>();
    List<byte[]> values = new ArrayList<>();
    byte[] origins = new byte[count];
    for (int i = 0; i < count; i++) {
      byte[] committed = state.get(keys[i]);
      Write write = spill.get(keys[i]);
      byte[] value = write == null ? committed : apply(write, committed);
      origins[i] =
          write == null
              ? (committed == null ? RowPage.ABSENT : RowPage.COMMITTED)
              : value == null ? RowPage.SPILL_DELETED : RowPage.SPILL;
      values.add(value);
      none.add(new byte[0]);
    }
    RowPage rows = answer(none, values, origins, into);
    rows.more = count < requested;
    return rows;
  }

  private static RowPage answer(
      List<byte[]> keys, List<byte[]> values, byte[] origins, RowPage into) {
    int bytes = 0;
    for (int i = 0; i < keys.size(); i++) {
      bytes += keys.get(i).length + (values.get(i) == null ? 0 : values.get(i).length);
    }
    Arrays.fill(into.data, (byte) 0x5a);
    into.reset(keys.size(), bytes);
    int at = 0;
    for (int i = 0; i < keys.size(); i++) {
      byte[] key = keys.get(i);
      byte[] value = values.get(i);
      System.arraycopy(key, 0, into.data, at, key.length);
      into.keyOffset[i] = at;
      into.keyLength[i] = key.length;
      at += key.length;
      into.valueOffset[i] = at;
      into.valueLength[i] = value == null ? -1 : value.length;
      if (value != null) {
        System.arraycopy(value, 0, into.data, at, value.length);
        at += value.length;
      }
      into.origin[i] = origins[i];
    }
    return into;
  }

  @Override
  public RowPage scan(ScanRequest request, long requireApplied) {
    scanRequests++;
    if (scanRequests > mostScans) {
      throw new IllegalStateException("worker lost");
    }
    int family = request.family();
    byte[] from = request.from();
    TreeMap<byte[], byte[]> merged = new TreeMap<>(UNSIGNED);
    NavigableMap<byte[], byte[]> state = answerFrom(family, requireApplied);
    TreeMap<byte[], Write> spill = writes.getOrDefault(family, new TreeMap<>(UNSIGNED));
    merged.putAll(state);
    spill.forEach((key, write) -> merged.compute(key, (k, before) -> apply(write, before)));
    int limit = Math.min(request.limitRows(), 1 + random.nextInt(40));
    List<byte[]> keys = new ArrayList<>();
    List<byte[]> values = new ArrayList<>();
    boolean more = false;
    NavigableMap<byte[], byte[]> tail =
        from == null ? merged : merged.tailMap(from, request.isInclusive());
    for (Map.Entry<byte[], byte[]> row : tail.entrySet()) {
      if (request.to() != null && UNSIGNED.compare(row.getKey(), request.to()) >= 0) {
        break;
      }
      if (keys.size() == limit) {
        more = true;
        break;
      }
      keys.add(row.getKey());
      values.add(row.getValue());
    }
    rowsScanned += keys.size();
    byte[] origins = new byte[keys.size()];
    for (int i = 0; i < origins.length; i++) {
      origins[i] = spill.containsKey(keys.get(i)) ? RowPage.SPILL : RowPage.COMMITTED;
    }
    RowPage page = answer(keys, values, origins, new RowPage());
    page.more = more;
    return page;
  }

  @Override
  public PendingRows startScan(ScanRequest request, long requireApplied) {
    return pending(scan(request, requireApplied));
  }

  @Override
  public PendingRows startGet(int family, byte[][] keys, int count, long requireApplied) {
    return pending(get(family, keys, count, requireApplied, new RowPage()));
  }

  @Override
  public PendingRows startRanges(
      int family, byte[][] from, byte[][] to, int count, long requireApplied) {
    List<byte[]> keys = new ArrayList<>();
    List<byte[]> values = new ArrayList<>();
    ByteArrayOutputStream origins = new ByteArrayOutputStream();
    boolean more = false;
    for (int i = 0; i < count && !more; i++) {
      assertTrue(i == 0 || UNSIGNED.compare(to[i - 1], from[i]) <= 0, "ranges do not ascend");
      ScanRequest range = new ScanRequest(family, from[i], true, to[i], 1 << 14, 1 << 20);
      RowPage page = scan(range, requireApplied);
      for (int row = 0; row < page.count; row++) {
        keys.add(page.keyBytes(row));
        int at = page.valueOffset[row];
        values.add(Arrays.copyOfRange(page.data, at, at + page.valueLength[row]));
        origins.write(page.origin[row]);
      }
      more = page.more || keys.size() > 60 && i < count - 1;
    }
    RowPage page = answer(keys, values, origins.toByteArray(), new RowPage());
    page.more = more;
    return pending(page);
  }

  /** The engine answers when it is asked; sometimes the reply is lost with the worker. */
  private PendingRows pending(RowPage page) {
    RowPage[] left = {losesReplies && random.nextInt(8) == 0 ? null : page};
    return () -> {
      RowPage taken = left[0];
      left[0] = null;
      return taken;
    };
  }

  @Override
  public RuntimeException rowTooLarge(long bytes) {
    return new IllegalArgumentException("a row of " + bytes + " bytes");
  }

  @Override
  public void write(WriteBlock block, boolean isSpill) {
    if (failsWrites) {
      throw new IllegalStateException("worker lost");
    }
    if (isSpill) {
      hasSpilled = true;
    }
    blocks++;
    rows += block.count();
    spillBlocks += isSpill ? 1 : 0;
    assertTrue(
        block.count() == 1 || block.bytes() <= WriteBlock.TARGET_BYTES,
        "a block of " + block.count() + " rows is over the bound");
    for (int i = 0; i < block.count(); i++) {
      int family = block.family(i);
      byte[] key = block.key(i);
      if (block.op(i) == WriteBlock.DROP_CF) {
        received.add(new Row(new Name(block, i), WriteBlock.DROP_CF, (byte) 0));
        hasDropped = true;
        TreeMap<byte[], Write> gone = new TreeMap<>(UNSIGNED);
        state(base, family).keySet().forEach(k -> gone.put(k, new Write(WriteBlock.DELETE, null)));
        writes.put(family, gone);
        continue;
      }
      received.add(row(block, i));
      byte[] value = block.value(i);
      Write write = new Write(block.op(i), value);
      writes
          .computeIfAbsent(family, f -> new TreeMap<>(UNSIGNED))
          .merge(key, write, MapEngine::after);
    }
  }

  private static Write after(Write before, Write write) {
    if (write.op != WriteBlock.APPEND) {
      return write;
    }
    return switch (before.op) {
      case WriteBlock.DELETE -> new Write(WriteBlock.PUT, write.value);
      case WriteBlock.PUT -> new Write(WriteBlock.PUT, join(before.value, write.value));
      default -> new Write(WriteBlock.APPEND, join(before.value, write.value));
    };
  }

  @Override
  public long appliedThrough() {
    if (failsAtOnce) {
      throw new IllegalStateException("worker lost");
    }
    return applied;
  }
}
