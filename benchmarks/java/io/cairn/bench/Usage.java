package io.cairn.bench;

import org.apache.spark.SparkContext;

/**
 * What the processes of a run use in its measured part: CPU, bytes written to disks, and bytes of
 * the files that they created below the checkpoint.
 */
final class Usage {
  private final CheckpointFiles files;
  private final double cpuSeconds;
  private final double ownCpuSeconds;
  private final long diskWrittenBytes;

  private Usage(BenchOptions options) {
    files =
        new CheckpointFiles(options.checkpoint(), SparkContext.getOrCreate().hadoopConfiguration());
    cpuSeconds = Processes.cpuSeconds();
    ownCpuSeconds = Processes.ownCpuSeconds();
    diskWrittenBytes = Processes.diskWrittenBytes();
  }

  /** Starts the measured part of a workload on stores, which then have no work left to do. */
  static Usage ofStores(BenchOptions options, StoreUnderTest... stores) {
    for (StoreUnderTest store : stores) {
      store.snapshot();
    }
    Processes.awaitIdle();
    return ofStoresInUse(options, stores);
  }

  /** The same at once: what the batches before left to do counts too. */
  static Usage ofStoresInUse(BenchOptions options, StoreUnderTest... stores) {
    for (StoreUnderTest store : stores) {
      store.times().clear();
    }
    return new Usage(options);
  }

  /** Starts the measured part of a query, which continues meanwhile. */
  static Usage ofQuery(BenchOptions options) {
    return new Usage(options);
  }

  /**
   * Ends the part of a workload on stores: takes a snapshot of each, so that work that a provider
   * puts off counts too, and waits for the background work.
   */
  void end(Results results, long writtenRows, StoreUnderTest... stores) {
    ProviderTimes times = new ProviderTimes();
    for (StoreUnderTest store : stores) {
      times.add(store.times());
      store.snapshot();
    }
    Processes.awaitIdle();
    times.writeTo(results);
    end(results, writtenRows);
  }

  /** Ends the part of a workload that takes no snapshot, once its background work is done. */
  void endWhenIdle(Results results, long writtenRows) {
    Processes.awaitIdle();
    end(results, writtenRows);
  }

  /** Ends the part now and sets its numbers. */
  void end(Results results, long writtenRows) {
    double cpu = Processes.cpuSeconds() - cpuSeconds;
    results.set("cpu_seconds", cpu);
    results.set("jvm_cpu_seconds", Processes.ownCpuSeconds() - ownCpuSeconds);
    results.set("disk_written_bytes", Processes.diskWrittenBytes() - diskWrittenBytes);
    results.set("written_rows", writtenRows);
    if (writtenRows > 0) {
      results.set("cpu_us_per_written_row", cpu * 1e6 / writtenRows);
    }
    CheckpointFiles.Created created = files.created();
    results.set("uploaded_bytes", created.bytes());
    results.set("snapshot_bytes", created.snapshotBytes());
  }
}
