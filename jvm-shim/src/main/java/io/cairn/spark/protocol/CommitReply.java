package io.cairn.spark.protocol;

import io.cairn.spark.errors.CairnException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;

/**
 * The reply to a COMMIT: the durable version, what its commit cost, and the store's sizes after it.
 *
 * <pre>
 *   commit_reply := u64 changelog_bytes  u64 snapshot_version  u64 estimated_keys
 *                   u64 memtable_bytes  u64 sst_bytes  u64 snapshot_bytes_left
 *                   u32 lineage_versions  u32 wait_us  u32 encode_us  u32 put_us
 *                   u32 memory_wait_us  u32 snapshot_wait_us
 *                   { u16 cf  u64 keys }[rows]  checkpoint_id
 * </pre>
 *
 * <p>Its form is fixed because the task waits for it: JSON is read by code that runs once per
 * batch, so it is never in the processor's caches.
 *
 * @param checkpointId Spark's id of the version
 * @param counts keys by family id
 * @param snapshotVersion the newest snapshot known, 0 if none
 * @param estimatedKeys the engine's estimate of the store's keys
 * @param snapshots how far the store's snapshots are
 */
public record CommitReply(
    String checkpointId,
    Map<Integer, Long> counts,
    long changelogBytes,
    long snapshotVersion,
    long estimatedKeys,
    long memtableBytes,
    long sstBytes,
    Snapshots snapshots,
    Micros times) {
  private static final int FIXED_BYTES = 6 * Long.BYTES + 6 * Integer.BYTES;
  private static final int COUNT_BYTES = Short.BYTES + Long.BYTES;

  /**
   * How far the store's snapshots are.
   *
   * @param bytesLeft what the running one has still to upload
   * @param lineageVersions number of versions that were committed since the last one
   */
  public record Snapshots(long bytesLeft, long lineageVersions) {}

  /**
   * Times of a commit in the engine.
   *
   * @param waited until all frames had arrived
   * @param encode to encode the changelog
   * @param put of the PUT
   * @param memoryWait until the engine had memory for the rows
   * @param snapshotWait for snapshots
   */
  public record Micros(long waited, long encode, long put, long memoryWait, long snapshotWait) {}

  /** Of a session that has not committed. */
  public static final CommitReply NONE =
      new CommitReply(
          null, Map.of(), 0, 0, 0, 0, 0, new Snapshots(0, 0), new Micros(0, 0, 0, 0, 0));

  /** Reads a reply; throws if its lengths contradict each other. */
  public static CommitReply read(FrameHeader header, byte[] payload) {
    int rows = header.rows();
    long idStart = FIXED_BYTES + (long) rows * COUNT_BYTES;
    if (rows < 0 || idStart >= header.payloadBytes()) {
      throw CairnException.protocol(
          "the reply to a commit has " + header.payloadBytes() + " bytes for " + rows + " counts");
    }
    ByteBuffer bytes = ByteBuffer.wrap(payload).order(ByteOrder.LITTLE_ENDIAN);
    long changelogBytes = bytes.getLong();
    long snapshotVersion = bytes.getLong();
    long estimatedKeys = bytes.getLong();
    long memtableBytes = bytes.getLong();
    long sstBytes = bytes.getLong();
    Snapshots snapshots = new Snapshots(bytes.getLong(), unsigned(bytes));
    Micros times =
        new Micros(
            unsigned(bytes), unsigned(bytes), unsigned(bytes), unsigned(bytes), unsigned(bytes));
    Map<Integer, Long> counts = new TreeMap<>();
    for (int row = 0; row < rows; row++) {
      counts.put(Short.toUnsignedInt(bytes.getShort()), bytes.getLong());
    }
    int idBytes = (int) (header.payloadBytes() - idStart);
    return new CommitReply(
        new String(payload, (int) idStart, idBytes, StandardCharsets.UTF_8),
        Collections.unmodifiableMap(counts),
        changelogBytes,
        snapshotVersion,
        estimatedKeys,
        memtableBytes,
        sstBytes,
        snapshots,
        times);
  }

  private static long unsigned(ByteBuffer bytes) {
    return Integer.toUnsignedLong(bytes.getInt());
  }
}
