package io.cairn.spark.engine;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.protocol.BatchReader;
import io.cairn.spark.protocol.BatchWriter;
import io.cairn.spark.protocol.ChangePage;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.FrameHeader;
import io.cairn.spark.protocol.FrameKind;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.SentWrites;
import io.cairn.spark.protocol.WriteBlock;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One session's way to its worker: requests and writes on a channel of its own, numbered and
 * counted.
 *
 * <p>A session survives its worker as long as it has spilled little: the version is loaded again in
 * another one, the spill is sent again and the request is repeated once. Beyond 8 MiB of spill the
 * loss of the worker ends the session, and Spark retries the task. What was not spilled the cache
 * has still, and writes again: {@link #startOver}. One caller at a time.
 */
public final class SessionChannel implements EngineSource, AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(SessionChannel.class);
  private static final int CHANGES_COLUMNS = 4;

  /** Above the numbers of write frames, so that an error tells which of the two it answers. */
  private static final long FIRST_REQUEST = 1L << 32;

  /** Loads the session's version again, in whatever worker now serves the instance. */
  public interface Reload {
    Reloaded again();
  }

  /**
   * A version loaded again.
   *
   * @param number of the session from now on: what the old number sent is void
   * @param appliedThrough version up to which deltas are applied
   */
  public record Reloaded(int number, long appliedThrough) {}

  private final EngineInstance instance;
  private final long version;
  private final ReplayBuffer kept = new ReplayBuffer();
  private long session;
  private final Reload reload;
  private final BatchWriter writer = new BatchWriter();
  private final BatchReader reader = new BatchReader();
  private final RowPage rows = new RowPage();
  private WorkerProcess process;
  private DataChannel channel;
  private long requestNumber = FIRST_REQUEST;
  private long framesSent;
  private long rowsSent;
  private long rowsRead;
  private long appliedThrough;
  private volatile boolean hasFailed;

  /**
   * @param version loaded, which the session's writes follow
   */
  public SessionChannel(
      EngineInstance instance, long version, int number, long appliedThrough, Reload reload) {
    this.instance = instance;
    this.version = version;
    this.session = (long) instance.number() << 32 | number;
    this.appliedThrough = appliedThrough;
    this.reload = reload;
  }

  public long id() {
    return session;
  }

  @Override
  public RowPage get(int family, byte[][] keys, int count, long requireApplied) {
    return ask(
        FrameKind.GET,
        FrameKind.GET_REPLY,
        requireApplied,
        () -> {
          writer.begin(count);
          writer.shorts(family);
          writer.binary(keys);
        });
  }

  @Override
  public RowPage scan(
      int family,
      byte[] from,
      boolean inclusive,
      byte[] to,
      int limitRows,
      int limitBytes,
      long requireApplied) {
    return ask(
        FrameKind.SCAN,
        FrameKind.SCAN_REPLY,
        requireApplied,
        () -> {
          writer.begin(1);
          writer.shorts(family);
          writer.oneBinary(from);
          writer.oneByte(inclusive ? 1 : 0);
          writer.oneBinary(to);
          writer.oneInt(limitRows);
          writer.oneInt(limitBytes);
        });
  }

  @Override
  public CairnException rowTooLarge(long bytes) {
    return CairnException.rowTooLarge(bytes).at(instance.store(), version + 1);
  }

  @Override
  public void write(WriteBlock block, boolean isSpill) {
    try {
      writeFrame(block, isSpill);
    } catch (CairnException e) {
      throw e.at(instance.store(), version + 1);
    }
  }

  private void writeFrame(WriteBlock block, boolean isSpill) {
    if (framesSent == 0) {
      ensureLoaded();
    }
    writer.begin(block.count);
    writer.bytes(block.op);
    writer.shorts(block.family);
    writer.binary(block.keyBase, block.keyOffset, block.keyLength, block.keyBytes);
    writer.binary(block.valueBase, block.valueOffset, block.valueLength, block.valueBytes);
    writer.bytes(block.presence);
    writer.finish(FrameKind.WRITES, session, framesSent + 1, 0);
    if (isSpill) {
      kept.add(writer.array(), writer.start(), writer.length());
    }
    framesSent++;
    rowsSent += block.count;
    try {
      channel().send(writer.array(), writer.start(), writer.length());
    } catch (CairnException e) {
      goOn(e);
    }
  }

  /**
   * Sends again, to another worker or with renewed keys, what the engine lost of this session;
   * throws the error again where that cannot be.
   */
  private void goOn(CairnException error) {
    hasFailed = true;
    if (!instance.prepareRepeat(error) || kept.count() != framesSent) {
      throw error;
    }
    LOG.warn("{}; the session goes on with {} frames sent again", error.getMessage(), kept.count());
    reopen();
    if (framesSent > 0) {
      kept.send(channel(), session);
    }
  }

  @Override
  public long appliedThrough() {
    return appliedThrough;
  }

  /**
   * Asks the engine to make the session's writes a version, after all its frames.
   *
   * @param arguments of {@code commit}, less instance, session, frames and rows
   * @param sent what the cache believes it sent: a difference is a bug that must not become a
   *     version
   */
  public JsonNode commit(ObjectNode arguments, SentWrites sent) {
    if (sent.blocks() != framesSent || sent.rows() != rowsSent) {
      throw CairnException.of(
          ErrorKind.BUG,
          "CAIRN_FRAMES_MISSING",
          "the cache sent "
              + sent.rows()
              + " rows in "
              + sent.blocks()
              + " blocks, the channel "
              + rowsSent
              + " in "
              + framesSent,
          "report it with the executor's log");
    }
    if (framesSent == 0) {
      ensureLoaded();
    }
    JsonNode answer;
    try {
      answer = commitOnce(arguments);
    } catch (CairnException e) {
      goOn(e);
      answer = commitOnce(arguments);
    }
    appliedThrough = Math.max(appliedThrough, answer.path("applied_through").asLong());
    return answer;
  }

  private JsonNode commitOnce(ObjectNode arguments) {
    return instance.call(
        "commit",
        arguments.put("session", session).put("frames", framesSent).put("rows", rowsSent));
  }

  /**
   * Goes on, in another worker where the last one is gone, as if nothing had been sent. REQUIRES:
   * whoever wrote has every write still, and writes all of them again.
   */
  public void startOver() {
    framesSent = 0;
    rowsSent = 0;
    kept.clear();
    reopen();
  }

  private void reopen() {
    hasFailed = true;
    drop();
    Reloaded reloaded = reload.again();
    session = (long) instance.number() << 32 | reloaded.number;
    appliedThrough = reloaded.appliedThrough;
  }

  /**
   * Tells the engine that the session's writes are void. Does nothing if it never heard of the
   * session.
   */
  public void abort() {
    if (framesSent > 0) {
      instance.callIfOpen("abort", EngineInstance.object().put("session", session));
    }
  }

  /** Reads a page of one version's changes. */
  public ChangePage changes(long version, String checkpointId, long fromRow, int limitRows) {
    Reply reply =
        exchange(
            FrameKind.CHANGES,
            FrameKind.CHANGES_REPLY,
            0,
            () -> {
              writer.begin(1);
              writer.oneLong(version);
              writer.oneBinary(checkpointId.getBytes(StandardCharsets.UTF_8));
              writer.oneLong(fromRow);
              writer.oneInt(limitRows);
            });
    RowPage page = new RowPage();
    BatchReader.room(page, reply.header.rows());
    byte[] ops = new byte[reply.header.rows()];
    short[] families = new short[reply.header.rows()];
    reader.begin(reply.payload, reply.header.payloadBytes(), reply.header.rows(), CHANGES_COLUMNS);
    reader.bytes(ops);
    reader.shorts(families);
    reader.binary(page.keyOffset, page.keyLength);
    reader.binary(page.valueOffset, page.valueLength);
    page.more = reply.header.hasMore();
    reader.handOver(page);
    return new ChangePage(ops, families, page);
  }

  /**
   * Whether the engine failed in this session, even where the session went on: what it has loaded
   * is in doubt.
   */
  public boolean hasFailed() {
    return hasFailed;
  }

  /** Rows read from the engine so far. */
  public long rowsRead() {
    return rowsRead;
  }

  @Override
  public void close() {
    // Whoever holds the session until its task ends must not hold its spill.
    kept.clear();
    drop();
  }

  private RowPage ask(int kind, int replyKind, long requireApplied, Runnable build) {
    Reply reply = exchange(kind, replyKind, requireApplied, build);
    int count = reply.header.rows();
    BatchReader.room(rows, count);
    boolean hasKeys = replyKind == FrameKind.SCAN_REPLY;
    reader.begin(reply.payload, reply.header.payloadBytes(), count, hasKeys ? 3 : 2);
    reader.bytes(rows.origin);
    if (hasKeys) {
      reader.binary(rows.keyOffset, rows.keyLength);
    }
    reader.binary(rows.valueOffset, rows.valueLength);
    rows.more = reply.header.hasMore();
    reader.handOver(rows);
    rowsRead += count;
    return rows;
  }

  private Reply exchange(int kind, int replyKind, long requireApplied, Runnable build) {
    try {
      try {
        return exchangeOnce(kind, replyKind, requireApplied, build);
      } catch (CairnException e) {
        goOn(e);
        return exchangeOnce(kind, replyKind, requireApplied, build);
      }
    } catch (CairnException e) {
      throw e.at(instance.store(), version);
    }
  }

  private Reply exchangeOnce(int kind, int replyKind, long requireApplied, Runnable build) {
    DataChannel open = channel();
    build.run();
    long number = ++requestNumber;
    writer.finish(kind, session, number, requireApplied);
    open.send(writer.array(), writer.start(), writer.length());
    if (rows.data.length > 0 && rows.data.length <= WriteBlock.TARGET_BYTES * 2) {
      // The last page is not valid any more once its source is asked again: its array takes the
      // next reply.
      open.reusePayload(rows.data);
      rows.data = new byte[0];
    }
    FrameHeader header = open.receive();
    byte[] payload = open.takePayload();
    boolean isOurs = header.session() == session && header.sequence() == number;
    if (isOurs && header.kind() == FrameKind.ERROR) {
      throw error(header, payload);
    }
    if (!isOurs || header.kind() != replyKind) {
      open.abandon();
      String what =
          header.kind() == FrameKind.ERROR ? ": " + error(header, payload).getMessage() : "";
      throw CairnException.protocol(
          "the engine answered request "
              + number
              + " with kind 0x"
              + Integer.toHexString(header.kind())
              + ", request "
              + header.sequence()
              + what);
    }
    appliedThrough = Math.max(appliedThrough, header.applied());
    return new Reply(header, payload);
  }

  private static CairnException error(FrameHeader header, byte[] payload) {
    try {
      return CairnException.fromEngine(
          ControlChannel.JSON.readTree(payload, 0, header.payloadBytes()));
    } catch (IOException e) {
      return CairnException.protocol("the engine sent an error that is not JSON");
    }
  }

  private DataChannel channel() {
    if (channel == null) {
      process = instance.open();
      channel = process.channels().take();
    }
    return channel;
  }

  /** Loads the version again if the worker that had it is gone. */
  private void ensureLoaded() {
    if (!instance.isWhereItWas()) {
      reopen();
    } else if (process != null && !process.isAlive()) {
      drop();
    }
  }

  private void drop() {
    if (channel != null) {
      process.channels().give(channel);
      channel = null;
      process = null;
    }
  }

  private record Reply(FrameHeader header, byte[] payload) {}
}
