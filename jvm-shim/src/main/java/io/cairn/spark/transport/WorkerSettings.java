package io.cairn.spark.transport;

/**
 * What a worker is started with.
 *
 * @param python executable that has the package {@code cairn}
 * @param localDir folder of the executor's workers for their working state
 * @param memoryBytes this worker's share of {@code cairn.workerMemory}
 * @param localDiskBytes this worker's share of {@code cairn.localDiskBytes}
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
    int requestTimeoutMs) {}
