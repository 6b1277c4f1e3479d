package io.cairn.spark.cache;

/**
 * The entries of one family: slabs that hold them, a table that finds them, for ordered families an
 * order over their keys.
 */
class EntryMap {
  private final MemoryAccount room;
  final Slabs slabs;
  final EntryTable table;

  /** Null: no order is kept. */
  OrderIndex order;

  /** Slab of an entry in the making, which no eviction may take; 0: none. */
  int heldSlab;

  EntryMap(MemoryAccount room) {
    this.room = room;
    this.slabs = new Slabs(room);
    this.table = new EntryTable(room);
  }

  final int find(int hash, Object keyBase, long keyOffset, int keyLength) {
    return table.find(slabs, hash, keyBase, keyOffset, keyLength);
  }

  final byte[] slab(int address) {
    return slabs.array(address);
  }

  /**
   * Adds an entry for a key that is not there. The caller sets its state and value. 0: no room, and
   * nothing has changed.
   */
  final int insert(int hash, Object keyBase, long keyOffset, int keyLength, int capacity) {
    if (!table.ensure()) {
      return 0;
    }
    int address = slabs.allocate(Entry.size(keyLength, capacity));
    if (address == 0) {
      return 0;
    }
    Entry.write(
        slabs.array(address), Slabs.at(address), hash, keyBase, keyOffset, keyLength, capacity);
    // Making room for the indexes may evict, but not this entry, and may leave a smaller table.
    heldSlab = Slabs.slabOf(address);
    boolean room = order == null || order.add(address);
    if (room && !table.ensure()) {
      room = false;
      if (order != null) {
        order.remove(address);
      }
    }
    heldSlab = 0;
    if (!room) {
      kill(address);
      return 0;
    }
    table.add(hash, address);
    return address;
  }

  /**
   * Gives an entry a larger place: key, hash, epoch and presence go along, the state and the value
   * do not. 0: no room, and nothing has changed. The old copy says where the new one is.
   */
  final int regrow(int address, int capacity) {
    byte[] old = slabs.array(address);
    long oldAt = Slabs.at(address);
    int keyLength = Entry.keyLength(old, oldAt);
    int hash = Entry.hash(old, oldAt);
    int moved = slabs.allocate(Entry.size(keyLength, capacity));
    if (moved == 0) {
      return 0;
    }
    byte[] slab = slabs.array(moved);
    long at = Slabs.at(moved);
    Entry.write(slab, at, hash, old, Entry.key(oldAt), keyLength, capacity);
    Entry.setEpoch(slab, at, Entry.epoch(old, oldAt));
    Entry.setPresence(slab, at, Entry.presence(old, oldAt));
    table.move(hash, address, moved);
    if (order != null) {
      order.move(moved);
    }
    Entry.setState(old, oldAt, Entry.MOVED);
    Entry.setValueLength(old, oldAt, moved);
    return moved;
  }

  /** Marks an entry dead that is in no index any more; frees its slab if nothing else is in it. */
  final void kill(int address) {
    byte[] slab = slabs.array(address);
    long at = Slabs.at(address);
    Entry.setState(slab, at, Entry.DEAD);
    int number = Slabs.slabOf(address);
    if (slabs.kill(address, Entry.size(slab, at))
        && number != slabs.current()
        && number != heldSlab) {
      slabs.free(number);
    }
  }

  final void keepOrder() {
    if (order == null) {
      order = new OrderIndex(room, slabs);
    }
  }

  final void dropOrder() {
    if (order != null) {
      order.close();
      order = null;
    }
  }

  final long bytes() {
    return slabs.bytes() + table.bytes() + (order == null ? 0 : order.bytes());
  }

  void clear() {
    dropOrder();
    slabs.clear();
    table.clear();
  }
}
