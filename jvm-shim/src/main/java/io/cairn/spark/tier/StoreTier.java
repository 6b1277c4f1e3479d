package io.cairn.spark.tier;

/**
 * The tier of one provider instance: the committed entries it holds (the base) and who is using them.
 *
 * <p>One session or load at a time. The stamp may be read from any thread.
 */
public final class StoreTier implements AutoCloseable {
  public StoreTier(TierBudget budget) {
    throw new UnsupportedOperationException();
  }

  /** Makes a family known. Idempotent; inside or outside a session. {@code ordered}: ranges will be asked of it; {@code multi}: appends. */
  public void defineFamily(int id, boolean ordered, boolean multi) {
    throw new UnsupportedOperationException();
  }

  /** Forgets a family that the loaded version does not have. Inside a session use {@link TierSession#dropFamily}. */
  public void dropFamily(int id) {
    throw new UnsupportedOperationException();
  }

  /** Version that the base stands at, or -1 before the first {@link #reset}. */
  public long stampVersion() {
    throw new UnsupportedOperationException();
  }

  /** Checkpoint id that the base stands at; may be null. */
  public String stampId() {
    throw new UnsupportedOperationException();
  }

  /** Empties the base and stamps it. {@code empty}: that version holds no key at all, so every family is complete. */
  public void reset(long version, String id, boolean empty) {
    throw new UnsupportedOperationException();
  }

  /** Begins a session on the stamped version. It ends with {@link TierSession#commit} or {@link TierSession#abort}. */
  public TierSession begin(EngineSource source) {
    throw new UnsupportedOperationException();
  }

  /** Starts to fill an emptied base with the committed state: between {@link #reset} and a session, or as a session's first act. */
  public BulkLoad startLoad() {
    throw new UnsupportedOperationException();
  }

  /** Whether the base holds all keys of the family. */
  public boolean isComplete(int family) {
    throw new UnsupportedOperationException();
  }

  /** Present keys of the family in the base; of a complete family all that are committed. */
  public long entries(int family) {
    throw new UnsupportedOperationException();
  }

  public TierStats stats() {
    throw new UnsupportedOperationException();
  }

  /** Frees everything; at the end of the session if one is open. Idempotent. */
  @Override
  public void close() {
    throw new UnsupportedOperationException();
  }
}
