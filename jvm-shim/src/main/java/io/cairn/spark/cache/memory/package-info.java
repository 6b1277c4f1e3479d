/**
 * Entries (a key, a value and a few marks) as bytes in arrays, and the memory they take.
 *
 * <pre>
 * EntryMap       the entries of one column family: Slabs hold them, EntryTable finds them, OrderIndex sorts them (in OrderChunks)
 * Entry          layout of one entry
 * MemoryPool     the bound of a process; MemoryAccount: the part of it that one store holds
 * </pre>
 *
 * <p>INVARIANT: memory is reserved before an entry is added or grown ({@link
 * io.cairn.spark.cache.memory.EntryMap#bytesToInsert}). So no allocation fails, and none evicts.
 */
package io.cairn.spark.cache.memory;
