package io.cairn.spark.settings;

/**
 * The settings with which a worker starts.
 *
 * @param python executable that has the package {@code cairn}
 * @param localDir folder for the working state of the executor's workers
 * @param keepsCache whether the SST caches in that folder outlive the workers
 */
public record WorkerSettings(
    String python,
    String localDir,
    boolean keepsCache,
    int workers,
    Resources resources,
    Timeouts timeouts) {
  /**
   * The limits of one worker.
   *
   * @param memoryBytes its share of {@code cairn.workerMemory}
   * @param localDiskBytes its share of {@code cairn.localDiskBytes}
   */
  public record Resources(long memoryBytes, long localDiskBytes) {}

  /**
   * The timeouts of the shim.
   *
   * @param startMs limit of the answer of a worker that starts
   * @param requestMs limit of the reply to a read, and to a message of the control channel
   */
  public record Timeouts(int startMs, int requestMs) {
    /**
     * A worker starts in about a second. A hundred times as long is enough for a machine without
     * free CPU, or for packages on a slow file system; a wrapper that never starts Python is found.
     */
    static final int START_MS = 120_000;

    private static final int REQUESTS_PER_SILENCE = 10;

    /** A call is given up if the worker finishes nothing for so long. */
    public int silenceMs() {
      return (int) Math.min(Integer.MAX_VALUE, (long) requestMs * REQUESTS_PER_SILENCE);
    }
  }
}
