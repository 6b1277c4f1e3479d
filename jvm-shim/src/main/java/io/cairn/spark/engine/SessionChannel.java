package io.cairn.spark.engine;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.protocol.BatchReader;
import io.cairn.spark.protocol.BatchWriter;
import io.cairn.spark.protocol.ChangePage;
import io.cairn.spark.protocol.CommitReply;
import io.cairn.spark.protocol.CommitRequest;
import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.FrameBytes;
import io.cairn.spark.protocol.FrameHeader;
import io.cairn.spark.protocol.FrameKind;
import io.cairn.spark.protocol.FrameWriter;
import io.cairn.spark.protocol.Frames;
import io.cairn.spark.protocol.Json;
import io.cairn.spark.protocol.LookupWriter;
import io.cairn.spark.protocol.PendingRows;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;
import io.cairn.spark.protocol.WriteBlock;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The requests and writes of one session, over its own data channel.
 *
 * <p>Recovery: every attempt (a request, a spilled frame, a commit) that fails because the worker
 * or the instance is gone, or because credentials expired, is repeated once. Before that the
 * version is loaded again under a new session, and the spilled frames are sent again from a {@link
 * ReplayBuffer}. A session that spilled more than this buffer holds fails, and Spark retries the
 * task. One caller at a time. Spec: docs/adr/0011-one-session-one-recovery.md.
 */
public final class SessionChannel implements EngineSource, AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(SessionChannel.class);

  /** Above the numbers of write frames, so that errors show which of the two they answer. */
  private static final long FIRST_REQUEST = 1L << 32;

  private static final Runnable NOTHING_TO_BUILD = () -> {};

  /**
   * A version that is loaded in the engine.
   *
   * @param session id; frames of the instance's earlier sessions are void
   * @param appliedThrough version up to which deltas are applied
   */
  public record Loaded(long session, long appliedThrough) {}

  private final EngineInstance instance;
  private final long version;
  private final Supplier<Loaded> reload;
  private final ReplayBuffer replayBuffer = new ReplayBuffer();
  private final BatchWriter writer = new BatchWriter();
  private final BatchReader reader = new BatchReader();
  private final RowPage rows = new RowPage();

  /** Made by the first read: most sessions of a cached state have none. */
  private LookupWriter lookup;

  private WorkerProcess process;
  private DataChannel channel;

  /** INVARIANT: its reply is received before anything else is sent. Null: none. */
  private Deferred inFlight;

  private long session;
  private long requestNumber = FIRST_REQUEST;
  private long framesSent;
  private long rowsSent;

  /** Whether the worker has frames of this session, also void ones. */
  private boolean hasSent;

  private long rowsRead;
  private long appliedThrough;
  private volatile boolean needsReload;

  /** Why the session cannot continue. Null: it can. */
  private CairnException failure;

  /**
   * @param version the loaded version; a commit creates the next one
   * @param reload loads the version again, in the worker that now serves the instance
   */
  public SessionChannel(
      EngineInstance instance, long version, Loaded loaded, Supplier<Loaded> reload) {
    this.instance = instance;
    this.version = version;
    this.reload = reload;
    session = loaded.session;
    appliedThrough = loaded.appliedThrough;
  }

  @Override
  public RowPage get(int family, byte[][] keys, int count, long requireApplied) {
    if (lookup == null) {
      lookup = new LookupWriter();
    }
    if (lookup.begin(family, keys, count)) {
      Reply reply = request(FrameKind.LOOKUP, requireApplied, lookup, NOTHING_TO_BUILD);
      Frames.readLookup(reply.header, reply.payload, rows);
      rowsRead += rows.count;
      return rows;
    }
    return readRows(
        FrameKind.GET, requireApplied, () -> Frames.get(writer, family, keys, count), rows);
  }

  @Override
  public RowPage scan(ScanRequest request, long requireApplied) {
    return readRows(
        FrameKind.SCAN, requireApplied, () -> Frames.scan(writer, request), new RowPage());
  }

  private RowPage readRows(int kind, long requireApplied, Runnable build, RowPage into) {
    readRows(request(kind, requireApplied, writer, build), into);
    return into;
  }

  private void readRows(Reply reply, RowPage into) {
    Frames.readRows(reader, reply.header, reply.payload, into);
    rowsRead += into.count;
  }

  @Override
  public PendingRows startScan(ScanRequest request, long requireApplied) {
    return start(FrameKind.SCAN, requireApplied, () -> Frames.scan(writer, request));
  }

  @Override
  public PendingRows startGet(int family, byte[][] keys, int count, long requireApplied) {
    return start(FrameKind.GET, requireApplied, () -> Frames.get(writer, family, keys, count));
  }

  @Override
  public PendingRows startRanges(
      int family, byte[][] from, byte[][] to, int count, long requireApplied) {
    return start(
        FrameKind.RANGES, requireApplied, () -> Frames.ranges(writer, family, from, to, count));
  }

  private PendingRows start(int kind, long requireApplied, Runnable build) {
    return attempt(
        version,
        () -> {
          inFlight = new Deferred(kind, sendRequest(kind, requireApplied, writer, build));
          return inFlight;
        });
  }

  /** A request whose reply is received when it is taken, or before the next frame is sent. */
  private final class Deferred implements PendingRows {
    private final int kind;
    private final long number;
    private RowPage page;

    private Deferred(int kind, long number) {
      this.kind = kind;
      this.number = number;
    }

    @Override
    public RowPage take() {
      if (inFlight == this) {
        attempt(
            version,
            () -> {
              settle();
              return null;
            });
      }
      RowPage taken = page;
      page = null;
      return taken;
    }

    private void receive() {
      RowPage received = new RowPage();
      readRows(receiveReply(channel, kind, number), received);
      page = received;
    }
  }

  /** Receives the reply that is still on its way. */
  private void settle() {
    if (inFlight == null) {
      return;
    }
    Deferred waiting = inFlight;
    inFlight = null;
    try {
      waiting.receive();
    } catch (CairnException e) {
      needsReload = true;
      if (channel.isBroken()) {
        throw e;
      }
      // Only this request was refused: the reads that need its rows ask for them again.
      instance.noteRefusedAhead(e.at(instance.store(), version));
    }
  }

  /** Reads a page of one version's changes. */
  public ChangePage changes(long ofVersion, String checkpointId, long fromRow, int limitRows) {
    Reply reply =
        attempt(
            version,
            () -> {
              long number =
                  sendRequest(
                      FrameKind.CHANGES,
                      0,
                      writer,
                      () -> Frames.changes(writer, ofVersion, checkpointId, fromRow, limitRows));
              FrameHeader header = process.receiveChanges(channel);
              return reply(channel, header, FrameKind.CHANGES, number);
            });
    return Frames.readChanges(reader, reply.header, reply.payload);
  }

  @Override
  public CairnException rowTooLarge(long bytes) {
    return CairnException.rowTooLarge(bytes, FrameHeader.MAX_PAYLOAD_BYTES)
        .at(instance.store(), version + 1);
  }

  @Override
  public long appliedThrough() {
    return appliedThrough;
  }

  @Override
  public void write(WriteBlock block, boolean isSpill) {
    if (!isSpill) {
      // The COMMIT follows at once.
      channel().sendWithNext(built(block));
      sent(block);
      return;
    }
    FrameBytes frame =
        attempt(
            version + 1,
            () -> {
              FrameBytes built = built(block);
              channel().send(built);
              sent(block);
              return built;
            });
    replayBuffer.add(frame, block.count());
  }

  private FrameBytes built(WriteBlock block) {
    Frames.writes(writer, block);
    writer.finish(FrameKind.WRITES, session, framesSent + 1, 0);
    return writer.frame();
  }

  private void sent(WriteBlock block) {
    hasSent = true;
    framesSent++;
    rowsSent += block.count();
  }

  /**
   * Commits the session's writes as a version.
   *
   * @param request the payload of COMMIT without what was sent
   * @param sendWrites sends all writes that were not spilled; runs again after a recovery
   */
  public CommitReply commit(CommitRequest request, Runnable sendWrites) {
    return attempt(version + 1, () -> commitOnce(request, sendWrites));
  }

  private CommitReply commitOnce(CommitRequest request, Runnable sendWrites) {
    sendWrites.run();
    CommitRequest.Sent sent = new CommitRequest.Sent(framesSent, rowsSent);
    long number = ++requestNumber;
    byte[] frame = Frames.commit(session, number, request, sent);
    DataChannel open = channel();
    open.send(frame, 0, frame.length);
    Reply reply = reply(open, process.receiveCommit(open), FrameKind.COMMIT, number);
    return CommitReply.read(reply.header, reply.payload);
  }

  /** Makes the engine drop the session's writes, if it has any. */
  public void abort() {
    if (hasSent) {
      instance.callIfOpen("abort", Json.object().put("session", session));
    }
  }

  private <T> T attempt(long ofVersion, Supplier<T> action) {
    requireUsable();
    try {
      if (!instance.isOpen()) {
        recover(CairnException.workerLost("the worker that had loaded the version is gone", null));
      }
      try {
        return action.get();
      } catch (CairnException e) {
        recover(e);
        return action.get();
      }
    } catch (CairnException e) {
      throw noted(e, ofVersion);
    }
  }

  /** A caller that ignored the first error receives it again, not what follows from it. */
  private void requireUsable() {
    if (failure != null) {
      throw failure;
    }
  }

  /** The error with the place where it occurred; ends the session if its channel is broken. */
  private CairnException noted(CairnException error, long ofVersion) {
    CairnException located = error.at(instance.store(), ofVersion);
    if (channel != null && channel.isBroken()) {
      failure = located;
    }
    return located;
  }

  /**
   * Restores the engine's state before the failed attempt: loads the version and sends the spilled
   * frames again. Throws the error if that is not possible.
   */
  private void recover(CairnException error) {
    needsReload = true;
    if (!instance.prepareRetry(error) || !replayBuffer.isComplete()) {
      throw error;
    }
    LOG.warn(
        "{}; the session continues: its version is loaded again, {} frames are sent again",
        error.getMessage(),
        replayBuffer.frameCount());
    drop();
    Loaded loaded = reload.get();
    session = loaded.session;
    appliedThrough = loaded.appliedThrough;
    framesSent = replayBuffer.frameCount();
    rowsSent = replayBuffer.rowCount();
    if (framesSent > 0) {
      replayBuffer.send(channel(), session);
    }
  }

  /** Whether the next session must load: the engine failed in this one, even if it recovered. */
  public boolean needsReload() {
    return needsReload;
  }

  /** Rows read from the engine so far. */
  public long rowsRead() {
    return rowsRead;
  }

  @Override
  public void close() {
    // Something may refer to the session until its task ends, but its frames and its last page are
    // not needed any more. A task may have hundreds of sessions.
    replayBuffer.clear();
    writer.release();
    rows.release();
    lookup = null;
    drop();
  }

  /**
   * Sends a request and waits for its reply.
   *
   * @param build writes the payload to {@code frame}; runs again after a recovery
   */
  private Reply request(int kind, long requireApplied, FrameWriter frame, Runnable build) {
    return attempt(version, () -> requestOnce(kind, requireApplied, frame, build));
  }

  private Reply requestOnce(int kind, long requireApplied, FrameWriter frame, Runnable build) {
    long number = sendRequest(kind, requireApplied, frame, build);
    if (kind != FrameKind.SCAN
        && rows.data.length > 0
        && rows.data.length <= WriteBlock.TARGET_BYTES * 2) {
      // The last page is invalid from now on: its array receives the next reply. A page of a scan
      // keeps its array, which must not be longer than it needs.
      channel.reusePayload(rows.data);
      rows.data = new byte[0];
    }
    return receiveReply(channel, kind, number);
  }

  private long sendRequest(int kind, long requireApplied, FrameWriter frame, Runnable build) {
    DataChannel open = channel();
    build.run();
    long number = ++requestNumber;
    frame.finish(kind, session, number, requireApplied);
    open.send(frame.array(), frame.start(), frame.length());
    return number;
  }

  private Reply receiveReply(DataChannel open, int kind, long number) {
    return reply(open, open.receive(), kind, number);
  }

  /** The frame that was received, if it is the reply to a request; throws its error. */
  private Reply reply(DataChannel open, FrameHeader header, int kind, long number) {
    byte[] payload = open.takePayload();
    boolean isOurs = header.session() == session && header.sequence() == number;
    if (isOurs && header.kind() == FrameKind.ERROR) {
      throw error(header, payload);
    }
    if (!isOurs || header.kind() != (kind | FrameKind.REPLY)) {
      open.abandon();
      throw CairnException.protocol(
          "the engine answered request "
              + number
              + " with kind 0x"
              + Integer.toHexString(header.kind())
              + ", request "
              + header.sequence()
              + (header.kind() == FrameKind.ERROR
                  ? ": " + error(header, payload).getMessage()
                  : ""));
    }
    appliedThrough = Math.max(appliedThrough, header.applied());
    return new Reply(header, payload);
  }

  private static CairnException error(FrameHeader header, byte[] payload) {
    return CairnException.fromEngine(Json.read(payload, header.payloadBytes()));
  }

  /** The channel, ready for the next frame. */
  private DataChannel channel() {
    if (channel == null) {
      process = instance.open();
      channel = process.channels().acquire();
    }
    settle();
    return channel;
  }

  private void drop() {
    if (channel != null) {
      if (inFlight != null) {
        inFlight = null;
        channel.abandon();
      }
      process.channels().release(channel);
      channel = null;
      process = null;
    }
  }

  private record Reply(FrameHeader header, byte[] payload) {}
}
