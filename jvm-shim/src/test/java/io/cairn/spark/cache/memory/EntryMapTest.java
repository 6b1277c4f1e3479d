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
      byte[] key = new byte[1 + random.nextInt(2)];
      random.nextBytes(key);
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
      assertTrue(account.tryReserve(map.bytesToGrow(key.length, capacity)));
      address = map.grow(address, capacity);
      capacities.put(key, capacity);
    }
    Entry.setState(map.slab(address), Slabs.at(address), LIVE);
  }

  private List<byte[]> keysInOrder() {
    List<byte[]> keys = new ArrayList<>();
    ByteSpan key = new ByteSpan();
    OrderIndex order = map.order();
    for (long at = order.first(); at != OrderIndex.END; at = order.next(at)) {
      int address = order.address(at);
      Entry.key(map.slab(address), Slabs.at(address), key);
      keys.add(key.toArray());
    }
    return keys;
  }

  @Test
  void anEntryWithoutReservedMemoryIsAnError() {
    ByteSpan key = new ByteSpan(new byte[8]);
    assertThrows(IllegalStateException.class, () -> map.insert(Bytes.hash(key), key, 9));
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
