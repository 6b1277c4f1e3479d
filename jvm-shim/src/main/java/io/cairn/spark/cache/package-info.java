/**
 * The state cache: what a store keeps in the JVM so that a row costs no round trip.
 *
 * <p>{@link io.cairn.spark.cache.StateCache} holds the committed entries of one provider instance
 * (the base), {@link io.cairn.spark.cache.CacheSession} one session's writes over it (the overlay),
 * {@link io.cairn.spark.cache.MemoryPool} bounds all of a process. The engine is asked through
 * {@link io.cairn.spark.protocol.EngineSource} alone.
 *
 * <pre>
 * get     overlay, else base, else engine (the answer enters the base unless it was spilled)
 * scan    UnorderedScan (any order) or OrderedScan (key order): overlay over base if the family is complete, else over engine pages
 * write   Overlay: one entry a key; full: sent as write blocks (spill), a new overlay begins, base entries of those keys are shadowed
 * commit  sendWrites sends the rest; commit folds the overlay into the base and restamps it
 * room    Slabs, EntryTable and OrderIndex take their bytes through Room; Eviction frees base slabs, of this store or of idle ones
 * </pre>
 *
 * <p>An entry is bytes in a slab ({@link io.cairn.spark.cache.Entry}); there is no object per
 * entry.
 */
package io.cairn.spark.cache;
