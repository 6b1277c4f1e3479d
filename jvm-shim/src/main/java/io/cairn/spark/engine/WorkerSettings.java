package io.cairn.spark.engine;

/**
 * What a worker is started with.
 *
 * @param python executable that has the package {@code cairn}
 * @param localDir folder of the executor's workers for their working state
 * @param memoryBytes this worker's share of {@code cairn.workerMemory}
 * @param localDiskBytes this worker's share of {@code cairn.localDiskBytes}
 * @param requestTimeoutMs for a read's reply
 * @param uploadTimeoutMs after which the engine gives up the upload of a snapshot
 */
public record WorkerSettings(
    String python,
    String localDir,
    int workers,
    long memoryBytes,
    long localDiskBytes,
    int downloadThreads,
    int uploadThreads,
    int startTimeoutMs,
    int requestTimeoutMs,
    long uploadTimeoutMs) {
  /**
   * A call that loads may last as long as many reads; a worker silent for longer is taken for
   * stopped.
   */
  static final int REQUESTS_PER_CALL = 10;

  int callTimeoutMs() {
    return (int) Math.min(Integer.MAX_VALUE, (long) requestTimeoutMs * REQUESTS_PER_CALL);
  }

  /** For the calls that may upload a snapshot before they answer. */
  int uploadingCallTimeoutMs() {
    return (int) Math.min(Integer.MAX_VALUE, callTimeoutMs() + uploadTimeoutMs);
  }
}
