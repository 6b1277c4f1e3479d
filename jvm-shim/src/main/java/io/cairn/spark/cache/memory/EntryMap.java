package io.cairn.spark.cache.memory;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.bytes.Bytes;

/** The entries of one family, found by their keys; ordered families also keep them in key order. */
public class EntryMap {
  private final MemoryAccount account;
  private final EntryTable table;
  private final ByteSpan key = new ByteSpan();
  public final Slabs slabs;

  /** Null if no order is kept. */
  private OrderIndex order;

  /** Open scans over the slabs: while it is not 0, no slab may be freed, and no entry may move. */
  public int openScans;

  public EntryMap(MemoryAccount account) {
    this.account = account;
    this.slabs = new Slabs(account);
    this.table = new EntryTable(account, slabs);
  }

  public final int count() {
    return table.count();
  }

  public final OrderIndex order() {
    return order;
  }

  /** Address of a key's entry; 0 if there is none. */
  public final int find(int hash, ByteSpan wanted) {
    return table.find(hash, wanted);
  }

  /** Address of the entry with the key of an entry in another map; 0 if there is none. */
  public final int findSameKey(byte[] other, long at) {
    int hash = Entry.hash(other, at);
    return table.find(hash, other, Entry.keyAt(at), Entry.keyLength(other, at));
  }

  /**
   * Reads what searches for keys with these hashes will read, so that they find it in the
   * processor's caches. Returns a meaningless number that depends on all reads.
   *
   * @param addresses is overwritten
   */
  public final int touch(int[] hashes, int[] addresses, int count) {
    return table.touch(hashes, addresses, count);
  }

  public final byte[] slab(int address) {
    return slabs.array(address);
  }

  /**
   * Memory to reserve before an entry is added: an upper bound for a new slab and the growth of the
   * indexes. Normally 0.
   */
  public final long bytesToInsert(int keyLength, int capacity) {
    long needed = slabs.bytesToAllocate(Entry.size(keyLength, capacity));
    long ordered = order == null ? 0 : order.bytesToAdd();
    long indexed = table.bytesToAdd();
    boolean isImpossible = Math.max(needed, indexed) == Long.MAX_VALUE;
    return isImpossible ? Long.MAX_VALUE : needed + indexed + ordered;
  }

  /** Memory to reserve before an entry is replaced. */
  public final long bytesToReplace(int keyLength, int capacity) {
    return slabs.bytesToAllocate(Entry.size(keyLength, capacity));
  }

  /**
   * Adds an entry for a key that is not in the map; the caller sets its state and value. REQUIRES:
   * {@link #bytesToInsert} are reserved.
   */
  public final int insert(int hash, ByteSpan newKey, int capacity) {
    int address = slabs.allocate((int) Entry.size(newKey.length, capacity));
    Entry.write(slabs.array(address), Slabs.at(address), hash, newKey, capacity);
    // Reads find the entry by the table, which is last: an allocation may fail before.
    table.makeSpace();
    if (order != null) {
      order.add(address);
    }
    table.add(hash, address);
    return address;
  }

  /**
   * Adds an entry that replaces another one of its key in the indexes: key, state and presence are
   * copied, the caller sets the rest, and ends the old entry. REQUIRES: {@link #bytesToReplace} are
   * reserved.
   */
  public final int replace(int address, int capacity) {
    byte[] old = slabs.array(address);
    long oldAt = Slabs.at(address);
    Entry.key(old, oldAt, key);
    int hash = Entry.hash(old, oldAt);
    int newer = slabs.allocate((int) Entry.size(key.length, capacity));
    byte[] slab = slabs.array(newer);
    long at = Slabs.at(newer);
    Entry.write(slab, at, hash, key, capacity);
    Entry.setState(slab, at, Entry.state(old, oldAt));
    Entry.setPresence(slab, at, Entry.presence(old, oldAt));
    readdress(hash, address, newer);
    return newer;
  }

  /**
   * Copies an entry to another slab, and forgets the old copy. REQUIRES: its slab is being freed;
   * memory for the copy is reserved.
   */
  public final int move(int address) {
    byte[] old = slabs.array(address);
    long oldAt = Slabs.at(address);
    int size = Entry.size(old, oldAt);
    int moved = slabs.allocate(size);
    int from = (int) (oldAt - Bytes.ARRAY);
    int to = (int) (Slabs.at(moved) - Bytes.ARRAY);
    System.arraycopy(old, from, slabs.array(moved), to, size);
    readdress(Entry.hash(old, oldAt), address, moved);
    return moved;
  }

  private void readdress(int hash, int from, int to) {
    table.move(hash, from, to);
    if (order != null) {
      order.move(to);
    }
  }

  /** Removes an entry from the indexes; its slab is being freed. */
  public final void unlink(int address) {
    byte[] slab = slabs.array(address);
    if (order != null) {
      order.remove(address);
    }
    table.remove(Entry.hash(slab, Slabs.at(address)), address);
  }

  /** Removes an entry, and frees its slab if it has no other live entry. */
  public void remove(int address) {
    unlink(address);
    byte[] slab = slabs.array(address);
    long at = Slabs.at(address);
    Entry.setState(slab, at, Entry.DEAD);
    slabs.kill(address, Entry.size(slab, at));
  }

  /** Prepares an empty map for a number of entries, so that its table need not grow. */
  public final void expect(int entries) {
    table.expect(entries);
  }

  /** Shrinks the indexes of a map that has lost most of its entries. */
  public final void shrinkIndexes() {
    if (count() * 8L * 8L < table.bytes()) {
      table.shrink();
    }
    if (order != null) {
      order.compact();
    }
  }

  /**
   * The entries in the order of the slabs. {@code frees}: each slab is freed after its last one.
   */
  public final EntryCursor cursor(boolean frees) {
    return new EntryCursor(slabs, frees);
  }

  /** Keeps an order from now on. REQUIRES: the map is empty, or keeps one already. */
  public final void keepOrder() {
    if (order == null) {
      order = new OrderIndex(account, slabs, false);
    }
  }

  /**
   * Begins an order without the present entries, which {@link #addToOrder} adds. Until {@link
   * #finishOrder} it is not complete.
   */
  public final void startOrder() {
    dropOrder();
    order = new OrderIndex(account, slabs, true);
  }

  /** Memory to reserve before {@link #addToOrder}. */
  public final long bytesToOrder() {
    return order == null ? 0 : order.bytesToAdd();
  }

  /**
   * Adds an entry to the order that was started, unless it is there already. REQUIRES: {@link
   * #bytesToOrder} are reserved.
   */
  public final void addToOrder(int address) {
    if (order != null) {
      order.addIfAbsent(address);
    }
  }

  /** Ends what {@link #startOrder} began. REQUIRES: the order has all entries. */
  public final void finishOrder() {
    if (order != null) {
      if (order.entryCount() != count()) {
        throw new IllegalStateException(
            "[CAIRN_INTERNAL] the order of a family has "
                + order.entryCount()
                + " of its "
                + count()
                + " entries");
      }
      order.becomeWhole();
    }
  }

  public final void dropOrder() {
    if (order != null) {
      order.close();
      order = null;
    }
  }

  public final long bytes() {
    return slabs.bytes() + table.bytes() + (order == null ? 0 : order.bytes());
  }

  public void clear() {
    dropOrder();
    slabs.clear();
    table.clear();
  }
}
