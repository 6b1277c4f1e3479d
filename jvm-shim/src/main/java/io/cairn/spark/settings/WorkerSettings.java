package io.cairn.spark.settings;

/**
 * What a worker is started with.
 *
 * @param python executable that has the package {@code cairn}
 * @param localDir folder for the working state of the executor's workers
 */
public record WorkerSettings(
    String python, String localDir, int workers, Resources resources, Timeouts timeouts) {
  /**
   * What one worker may use.
   *
   * @param memoryBytes its share of {@code cairn.workerMemory}
   * @param localDiskBytes its share of {@code cairn.localDiskBytes}
   */
  public record Resources(
      long memoryBytes, long localDiskBytes, int downloadThreads, int uploadThreads) {}

  /**
   * How long the shim waits.
   *
   * @param requestMs for the reply to a read
   * @param uploadMs after which the engine gives up the upload of a snapshot
   */
  public record Timeouts(int startMs, int requestMs, long uploadMs) {
    /** A call that loads may last as long as this many reads. */
    public static final int REQUESTS_PER_CALL = 10;

    public int callMs() {
      return (int) Math.min(Integer.MAX_VALUE, (long) requestMs * REQUESTS_PER_CALL);
    }

    /** For the calls that may upload a snapshot before they answer. */
    public int uploadingCallMs() {
      return (int) Math.min(Integer.MAX_VALUE, callMs() + uploadMs);
    }
  }
}
