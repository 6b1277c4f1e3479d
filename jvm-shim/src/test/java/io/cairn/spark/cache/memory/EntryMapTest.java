package io.cairn.spark.cache.memory;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

class EntryMapTest {
  private static final byte LIVE = 1;

  private final MemoryPool pool = new MemoryPool(1 << 30);
  private final MemoryAccount account = new MemoryAccount(pool);
  private final EntryMap map = new EntryMap(account);
  private final TreeMap<byte[], Integer> capacities = new TreeMap<>(Arrays::compareUnsigned);

  /** An entry that uses more than was reserved would let the cache exceed its bound. */
  @Test
  void reservedMemoryIsEnoughForAnyChange() {
    Random random = new Random(11);
    map.keepOrder();
    for (int step = 0; step < 60_000; step++) {
      byte[] key = randomKey(random);
      int capacity = Entry.capacityFor(random.nextInt(2_000) == 0 ? 100_000 : random.nextInt(90));
      change(key, capacity, random.nextInt(20_000) < step / 3);
      account.releaseReserved();
      assertEquals(map.bytes(), account.bytes());
    }
    assertTrue(capacities.size() > 5_000);
    assertArrayEquals(capacities.keySet().toArray(), keysInOrder().toArray());

    map.clear();

    assertEquals(0, pool.accountedBytes());
  }

  /**
   * Keys are compared by a few of their bytes first: equal ones, and their ends, must not mislead.
   */
  @Test
  void keysWithTheSameFirstBytesAreFoundInOrder() {
    Random random = new Random(19);
    map.keepOrder();
    for (int step = 0; step < 40_000; step++) {
      change(similarKey(random), 41, random.nextInt(30_000) < step / 3);
      if (step % 10 == 0) {
        byte[] wanted = similarKey(random);
        assertArrayEquals(capacities.ceilingKey(wanted), keyAt(seek(wanted, true)));
        assertArrayEquals(capacities.higherKey(wanted), keyAt(seek(wanted, false)));
      }
    }
    account.releaseReserved();
    assertEquals(map.bytes(), account.bytes());
    assertTrue(capacities.size() > 5_000, capacities.size() + " keys");
    assertArrayEquals(capacities.keySet().toArray(), keysInOrder().toArray());
  }

  /** Some 0 to 12 bytes of 0, 1 and 255, behind one of few long beginnings. */
  private static byte[] similarKey(Random random) {
    byte[] key = new byte[random.nextInt(4) * 6 + random.nextInt(13)];
    int same = Math.min(key.length, random.nextInt(4) * 6);
    for (int i = same; i < key.length; i++) {
      key[i] = (byte) (random.nextInt(3) - 1);
    }
    return key;
  }

  private long seek(byte[] wanted, boolean inclusive) {
    return map.order().seek(new ByteSpan(wanted), inclusive);
  }

  private byte[] keyAt(long position) {
    if (position == OrderIndex.END) {
      return null;
    }
    ByteSpan key = new ByteSpan();
    int address = map.order().address(position);
    Entry.key(map.slab(address), Slabs.at(address), key);
    return key.toArray();
  }

  private void insert(EntryMap into, byte[] key) {
    ByteSpan span = new ByteSpan(key);
    assertTrue(account.tryReserve(into.bytesToInsert(key.length, 9)));
    int address = into.insert(Bytes.hash(span), span, 9);
    Entry.setState(into.slab(address), Slabs.at(address), LIVE);
  }

  /** Scans of a refilled family would miss rows, or meet removed ones. */
  @Test
  void anOrderThatWasStartedLaterHasAllEntriesInTheEnd() {
    Random random = new Random(13);
    for (int step = 0; step < 3_000; step++) {
      change(randomKey(random), 41, false);
    }
    map.startOrder();
    List<byte[]> before = new ArrayList<>(capacities.keySet());
    Collections.shuffle(before, random);
    for (byte[] key : before) {
      for (int i = 0; i < 3; i++) {
        byte[] other = randomKey(random);
        change(other, Entry.capacityFor(random.nextInt(90)), random.nextInt(3) == 0);
      }
      ByteSpan span = new ByteSpan(key);
      int address = map.find(Bytes.hash(span), span);
      if (address != 0) {
        assertTrue(account.tryReserve(map.bytesToOrder()));
        map.addToOrder(address);
      }
      account.releaseReserved();
      assertEquals(map.bytes(), account.bytes());
    }

    map.finishOrder();

    assertArrayEquals(capacities.keySet().toArray(), keysInOrder().toArray());
    for (int step = 0; step < 3_000; step++) {
      change(randomKey(random), 41, random.nextBoolean());
    }
    assertArrayEquals(capacities.keySet().toArray(), keysInOrder().toArray());
  }

  @Test
  void anOrderThatLacksAnEntryIsAnError() {
    change(new byte[] {1}, 9, false);
    map.startOrder();
    change(new byte[] {2}, 9, false);
    assertThrows(IllegalStateException.class, map::finishOrder);
  }

  @Test
  void indexesOfAMapThatShrankReleaseMemory() {
    Random random = new Random(17);
    map.keepOrder();
    for (int step = 0; step < 40_000; step++) {
      change(randomKey(random), 41, false);
    }
    long full = map.bytes() - map.slabs.bytes();
    for (byte[] key : new ArrayList<>(capacities.keySet())) {
      if (random.nextInt(100) != 0) {
        change(key, 41, true);
      }
    }
    map.shrinkIndexes();
    account.releaseReserved();
    assertEquals(map.bytes(), account.bytes());
    long left = map.bytes() - map.slabs.bytes();
    assertTrue(left < full / 20, left + " of " + full);
    assertArrayEquals(capacities.keySet().toArray(), keysInOrder().toArray());

    for (int step = 0; step < 40_000; step++) {
      change(randomKey(random), 41, random.nextInt(3) == 0);
    }
    assertArrayEquals(capacities.keySet().toArray(), keysInOrder().toArray());
  }

  private static byte[] randomKey(Random random) {
    byte[] key = new byte[1 + random.nextInt(2)];
    random.nextBytes(key);
    return key;
  }

  private void change(byte[] key, int capacity, boolean removes) {
    ByteSpan span = new ByteSpan(key);
    int hash = Bytes.hash(span);
    int address = map.find(hash, span);
    assertEquals(capacities.containsKey(key), address != 0);
    if (address == 0) {
      assertTrue(account.tryReserve(map.bytesToInsert(key.length, capacity)));
      address = map.insert(hash, span, capacity);
      capacities.put(key, capacity);
    } else if (removes) {
      map.remove(address);
      capacities.remove(key);
      return;
    } else if (capacity > capacities.get(key)) {
      assertTrue(account.tryReserve(map.bytesToReplace(key.length, capacity)));
      int old = address;
      address = map.replace(old, capacity);
      Entry.setState(map.slab(old), Slabs.at(old), Entry.DEAD);
      capacities.put(key, capacity);
    }
    Entry.setState(map.slab(address), Slabs.at(address), LIVE);
  }

  private List<byte[]> keysInOrder() {
    List<byte[]> keys = new ArrayList<>();
    OrderIndex order = map.order();
    for (long at = order.first(); at != OrderIndex.END; at = order.next(at)) {
      keys.add(keyAt(at));
    }
    return keys;
  }

  @Test
  void anEntryWithoutReservedMemoryIsAnError() {
    ByteSpan key = new ByteSpan(new byte[8]);
    assertThrows(IllegalStateException.class, () -> map.insert(Bytes.hash(key), key, 9));
  }

  /** A read would find an entry without a value, or a scan would miss it. */
  @Test
  void anEntryThatCannotBeAddedIsInNoIndex() {
    Random random = new Random(23);
    map.keepOrder();
    int failures = 0;
    while (capacities.size() < 20_000) {
      byte[] key = new byte[3];
      random.nextBytes(key);
      ByteSpan span = new ByteSpan(key);
      long needed = map.bytesToInsert(key.length, 9);
      account.releaseReserved();
      if (needed > 0 && map.find(Bytes.hash(span), span) == 0) {
        assertTrue(account.tryReserve(needed - 1));
        try {
          map.insert(Bytes.hash(span), span, 9);
          capacities.put(key, 9);
        } catch (IllegalStateException e) {
          failures++;
          assertEquals(0, map.find(Bytes.hash(span), span));
        }
      }
      change(key, 9, false);
    }
    assertTrue(failures > 50, failures + " failures");
    account.releaseReserved();
    assertEquals(map.bytes(), account.bytes());
    assertArrayEquals(capacities.keySet().toArray(), keysInOrder().toArray());
  }

  /** A store that goes on after it would have less memory from then on. */
  @Test
  void aSlabThatCannotBeAllocatedIsNotAccounted() {
    MemoryAccount large = new MemoryAccount(new MemoryPool(1L << 40));
    EntryMap full = new EntryMap(large);
    ByteSpan key = new ByteSpan(new byte[8]);
    int capacity = Integer.MAX_VALUE - 1_023; // more than the heap of tests
    assertTrue(large.tryReserve(full.bytesToInsert(key.length, capacity)));

    assertThrows(OutOfMemoryError.class, () -> full.insert(Bytes.hash(key), key, capacity));

    large.releaseReserved();
    assertEquals(0, full.bytes());
    assertEquals(0, large.bytes());
    assertEquals(1, full.slabs.end(), "a number without a slab");
  }

  @Test
  void aTableThatCannotBeAllocatedIsNotAccounted() {
    MemoryAccount large = new MemoryAccount(new MemoryPool(1L << 40));
    EntryMap full = new EntryMap(large);

    assertThrows(OutOfMemoryError.class, () -> full.expect(800_000_000));

    large.releaseReserved();
    assertEquals(0, full.bytes());
    assertEquals(0, large.bytes());
  }

  @Test
  void memoryThatThePoolDoesNotHaveIsNotReserved() {
    assertFalse(account.tryReserve(pool.limitBytes() + 1));
    assertFalse(account.tryReserve(map.bytesToInsert(8, Integer.MAX_VALUE)));
    assertTrue(account.tryReserve(pool.limitBytes()));
    assertEquals(pool.limitBytes(), pool.accountedBytes());
    account.releaseReserved();
    assertEquals(0, pool.accountedBytes());
  }
}
