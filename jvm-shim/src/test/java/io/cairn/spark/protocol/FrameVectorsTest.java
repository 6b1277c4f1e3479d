package io.cairn.spark.protocol;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.UInt1Vector;
import org.apache.arrow.vector.UInt2Vector;
import org.apache.arrow.vector.UInt4Vector;
import org.apache.arrow.vector.UInt8Vector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.Test;

/**
 * The frames in {@code spec/vectors}, which the engine's tests read too: the same bytes must have
 * the same meaning in both languages.
 *
 * <p>Arrow's own reader reads the written frames, because Arrow's metadata has more than one
 * layout.
 */
class FrameVectorsTest {
  private static final Path VECTORS =
      Path.of(System.getProperty("cairn.test.root", "."), "spec", "vectors", "frames");
  private static final ArrowType U8 = new ArrowType.Int(8, false);
  private static final ArrowType U16 = new ArrowType.Int(16, false);
  private static final ArrowType U32 = new ArrowType.Int(32, false);
  private static final ArrowType U64 = new ArrowType.Int(64, false);
  private static final ArrowType BINARY = new ArrowType.Binary();

  private static final Schema WRITES =
      schema("op", U8, "cf", U16, "key", BINARY, "value", BINARY, "presence", U8);

  private static byte[] frame(String name) throws IOException {
    return Files.readAllBytes(VECTORS.resolve(name + ".frame"));
  }

  private static JsonNode meaning(String name) throws IOException {
    return Json.MAPPER.readTree(VECTORS.resolve(name + ".meaning.json").toFile());
  }

  private static Schema schema(Object... namesAndTypes) {
    Field[] fields = new Field[namesAndTypes.length / 2];
    for (int index = 0; index < fields.length; index++) {
      fields[index] =
          new Field(
              (String) namesAndTypes[2 * index],
              FieldType.nullable((ArrowType) namesAndTypes[2 * index + 1]),
              null);
    }
    return new Schema(Arrays.asList(fields));
  }

  private static byte[] bytes(JsonNode hex) {
    return hex.isNull() ? null : HexFormat.of().parseHex(hex.asText());
  }

  private static void assertHeader(JsonNode expected, FrameHeader header) {
    assertEquals(expected.get("kind").asInt(), header.kind());
    assertEquals(expected.get("flags").asInt(), header.flags());
    assertEquals(expected.get("session").asLong(), header.session());
    assertEquals(expected.get("sequence").asLong(), header.sequence());
    assertEquals(expected.get("applied").asLong(), header.applied());
    assertEquals(expected.get("rows").asInt(), header.rows());
  }

  /** Every header is read with the engine's meaning, and written with the engine's bytes. */
  @Test
  void headersAreReadAndWrittenByteForByte() throws IOException {
    for (String name :
        List.of(
            "hello",
            "hello_reply",
            "writes",
            "get",
            "get_reply",
            "scan_all",
            "scan_range",
            "scan_reply",
            "ranges",
            "ranges_reply",
            "changes",
            "lookup",
            "lookup_reply",
            "commit",
            "commit_reply",
            "serve_files",
            "file_read",
            "file_read_begin",
            "file_read_end",
            "file_write",
            "file_data",
            "file_write_reply",
            "file_rename",
            "file_status",
            "file_status_reply",
            "file_list",
            "file_list_reply",
            "file_delete",
            "file_system",
            "file_system_reply",
            "error")) {
      byte[] bytes = frame(name);

      FrameHeader header = FrameHeader.read(bytes, 0);

      assertHeader(meaning(name).get("header"), header);
      assertEquals(bytes.length - FrameHeader.BYTES, header.payloadBytes(), name);
      byte[] written = new byte[FrameHeader.BYTES];
      header.write(written, 0);
      assertArrayEquals(Arrays.copyOf(bytes, FrameHeader.BYTES), written, name);
    }
  }

  /** The worker's requests for files are read with its meaning. */
  @Test
  void requestsForFilesAreRead() throws IOException {
    for (String name :
        List.of(
            "file_read",
            "file_write",
            "file_rename",
            "file_status",
            "file_list",
            "file_delete",
            "file_system")) {
      byte[] bytes = frame(name);
      JsonNode expected = meaning(name).get("payload").get(name);
      FrameHeader header = FrameHeader.read(bytes, 0);
      byte[] payload = Arrays.copyOfRange(bytes, FrameHeader.BYTES, bytes.length);

      FileRequest request = FileRequest.read(header, payload);

      List<String> paths = new ArrayList<>();
      if (expected.has("paths")) {
        expected.get("paths").forEach(path -> paths.add(path.asText()));
      } else if (expected.has("from")) {
        paths.addAll(List.of(expected.get("from").asText(), expected.get("to").asText()));
      } else {
        paths.add(expected.get("path").asText());
      }
      assertEquals(paths, request.paths(), name);
      assertEquals(expected.path("offset").asLong(0), request.offset(), name);
      assertEquals(expected.path("length").asLong(0), request.length(), name);
      int flag = expected.path("replaces").asBoolean() ? 1 : expected.path("mode").asInt(0);
      assertEquals(flag, request.flag(), name);
    }
  }

  /** A request that is cut, or of another kind, is refused before a file is touched. */
  @Test
  void malformedRequestsForFilesAreRefused() throws IOException {
    for (String name : List.of("file_read", "file_write", "file_rename", "file_delete")) {
      byte[] bytes = frame(name);
      FrameHeader whole = FrameHeader.read(bytes, 0);
      int fixed = name.equals("file_read") ? 16 : 1;
      for (int length = 0; length <= fixed; length++) {
        byte[] cut = Arrays.copyOfRange(bytes, FrameHeader.BYTES, FrameHeader.BYTES + length);
        FrameHeader header =
            new FrameHeader(whole.kind(), 0, whole.session(), 7, 0, whole.rows(), length);
        CairnException error =
            assertThrows(CairnException.class, () -> FileRequest.read(header, cut), name);
        assertEquals("CAIRN_PROTOCOL", error.code());
      }
    }
    FrameHeader foreign = new FrameHeader(FrameKind.GET, 0, 3, 7, 0, 0, 0);
    assertThrows(CairnException.class, () -> FileRequest.read(foreign, new byte[0]));
  }

  /** The engine reads these bytes as the files and times that are meant. */
  @Test
  void repliesAboutFilesAreWrittenByteForByte() throws IOException {
    FrameHeader request = new FrameHeader(FrameKind.FILE_LIST, 0, 3, 7, 0, 0, 0);
    JsonNode rows = meaning("file_list_reply").get("payload").get("file_list_reply");
    ByteArrayOutputStream entries = new ByteArrayOutputStream();
    for (JsonNode row : rows) {
      entries.writeBytes(
          FileRequest.entry(
              row.get("size_bytes").asLong(),
              row.get("modified_ms").asLong(),
              row.get("path").asText()));
    }
    byte[] listing =
        FileRequest.reply(request, false, rows.size(), ByteBuffer.wrap(entries.toByteArray()));
    assertArrayEquals(frame("file_list_reply"), listing);

    FrameHeader read = new FrameHeader(FrameKind.FILE_READ, 0, 3, 7, 0, 0, 0);
    JsonNode status = meaning("file_read_begin").get("payload").get("file_status");
    byte[] begin =
        FileRequest.reply(
            read,
            true,
            0,
            FileRequest.status(
                status.get("size_bytes").asLong(), status.get("modified_ms").asLong()));
    assertArrayEquals(frame("file_read_begin"), begin);
  }

  @Test
  void repliesAreReadWithTheEnginesMeaning() throws IOException {
    for (String name :
        List.of("get_reply", "scan_reply", "scan_reply_empty", "ranges_reply", "changes_reply")) {
      assertReply(name);
    }
  }

  private void assertReply(String name) throws IOException {
    byte[] bytes = frame(name);
    JsonNode expected = meaning(name);
    FrameHeader header = FrameHeader.read(bytes, 0);
    byte[] payload = Arrays.copyOfRange(bytes, FrameHeader.BYTES, bytes.length);
    boolean hasKeys = header.kind() != (FrameKind.GET | FrameKind.REPLY);
    boolean isChanges = header.kind() == (FrameKind.CHANGES | FrameKind.REPLY);
    BatchReader reader = new BatchReader();
    ChangePage changes = isChanges ? Frames.readChanges(reader, header, payload) : null;
    RowPage rows = isChanges ? changes.rows() : new RowPage();
    if (!isChanges) {
      Frames.readRows(reader, header, payload, rows);
    }

    assertHeader(expected.get("header"), header);
    JsonNode expectedRows = expected.get("payload").get("rows");
    assertEquals(expectedRows.size(), header.rows(), name);
    for (int row = 0; row < header.rows(); row++) {
      JsonNode cells = expectedRows.get(row);
      assertArrayEquals(
          bytes(cells.get("value")),
          region(rows.data, rows.valueOffset[row], rows.valueLength[row]),
          name + " row " + row);
      if (hasKeys) {
        assertArrayEquals(
            bytes(cells.get("key")),
            region(rows.data, rows.keyOffset[row], rows.keyLength[row]),
            name + " row " + row);
      }
      if (isChanges) {
        assertEquals(cells.get("op").asInt(), changes.ops()[row]);
        assertEquals(cells.get("cf").asInt(), changes.families()[row]);
      } else {
        assertEquals(cells.get("origin").asInt(), rows.origin[row]);
      }
    }
  }

  private static byte[] region(byte[] data, int offset, int length) {
    return length < 0 ? null : Arrays.copyOfRange(data, offset, offset + length);
  }

  /** A truncated frame, or one with another payload, is refused before a row of it is used. */
  @Test
  void truncatedAndForeignRepliesAreRefused() throws IOException {
    byte[] bytes = frame("scan_reply");
    int rows = meaning("scan_reply").get("header").get("rows").asInt();
    byte[] whole = Arrays.copyOfRange(bytes, FrameHeader.BYTES, bytes.length);
    for (int length = 0; length < whole.length; length += 8) {
      byte[] cut = Arrays.copyOf(whole, length);
      CairnException error =
          assertThrows(CairnException.class, () -> readScan(cut, rows), "cut at " + cut.length);
      assertEquals("CAIRN_PROTOCOL", error.code());
    }
    for (int wrong : new int[] {rows + 1, whole.length, 1 << 29, Integer.MAX_VALUE}) {
      assertThrows(CairnException.class, () -> readScan(whole, wrong));
    }
    assertThrows(CairnException.class, () -> FrameHeader.read(new byte[FrameHeader.BYTES], 0));
  }

  private static void readScan(byte[] payload, int rows) {
    FrameHeader header =
        new FrameHeader(FrameKind.SCAN | FrameKind.REPLY, 0, 1, 1, 0, rows, payload.length);
    Frames.readRows(new BatchReader(), header, payload, new RowPage());
  }

  @Test
  void errorsAreReadWithAllTheirFields() throws IOException {
    byte[] bytes = frame("error");

    CairnException error =
        CairnException.fromEngine(
            Json.MAPPER.readTree(bytes, FrameHeader.BYTES, bytes.length - FrameHeader.BYTES));

    assertEquals(ErrorKind.CORRUPT, error.kind());
    assertEquals(
        "[CAIRN_MISSING] there is no changelog of version 7 (store=0/3/default, version=7,"
            + " object=file:/checkpoint/state/0/3/changelog/7.arrow)",
        error.getMessage());
  }

  @Test
  void writesAreWrittenWithTheEnginesMeaning() throws IOException {
    assertBlock(new WriteBlock(), new BatchWriter());
  }

  private static void fill(String name, WriteBlock block) throws IOException {
    for (JsonNode cells : meaning(name).get("payload").get("rows")) {
      byte[] value = bytes(cells.get("value"));
      ByteSpan valueSpan = new ByteSpan(value == null ? new byte[0] : value);
      valueSpan.length = value == null ? -1 : value.length;
      block.add(
          (byte) cells.get("op").asInt(),
          (byte) cells.get("presence").asInt(),
          cells.get("cf").asInt(),
          new ByteSpan(bytes(cells.get("key"))),
          valueSpan);
    }
  }

  /** A block is reused: nothing of its former rows may be in the next frame. */
  @Test
  void aReusedBlockHasOnlyItsNewRows() throws IOException {
    WriteBlock block = new WriteBlock();
    ByteSpan none = new ByteSpan();
    none.length = -1;
    for (int row = 0; row < 1_000; row++) {
      boolean isDelete = row % 3 == 0;
      block.add(
          isDelete ? WriteBlock.DELETE : WriteBlock.PUT,
          WriteBlock.PRESENT,
          0xFFFF,
          new ByteSpan(("former" + row).getBytes(StandardCharsets.UTF_8)),
          isDelete ? none : new ByteSpan(new byte[row]));
    }
    block.clear();
    BatchWriter writer = new BatchWriter();
    assertBlock(block, writer);
    assertBlock(block, writer);
  }

  /** More rows than one frame has are refused, and so are more bytes, unless it is one row. */
  @Test
  void aBlockIsFullByRowsOrByBytes() {
    WriteBlock block = new WriteBlock();
    ByteSpan key = new ByteSpan(new byte[1]);
    ByteSpan empty = new ByteSpan(new byte[0]);
    assertTrue(block.hasSpaceFor(WriteBlock.MAX_ROW_BYTES));
    while (block.hasSpaceFor(1)) {
      block.add(WriteBlock.PUT, WriteBlock.UNKNOWN, 0, key, empty);
    }
    assertEquals(WriteBlock.MAX_ROWS, block.count());
    block.clear();
    block.add(WriteBlock.PUT, WriteBlock.UNKNOWN, 0, key, new ByteSpan(new byte[5 << 20]));
    assertTrue(!block.hasSpaceFor(1));
    BatchWriter writer = new BatchWriter();
    Frames.writes(writer, block);
    writer.finish(FrameKind.WRITES, 1, 1, 0);
    assertTrue(writer.frame().length() > 5 << 20);
    block.clear();
    assertEquals(0, block.bytes());
  }

  private void assertBlock(WriteBlock block, BatchWriter writer) throws IOException {
    fill("writes", block);
    Frames.writes(writer, block);
    assertWritten("writes", writer, WRITES);
    block.clear();
  }

  @Test
  void commitsAreWrittenWithTheEnginesMeaning() throws IOException {
    ObjectNode arguments = (ObjectNode) meaning("commit").get("payload").get("json");
    FrameHeader header = FrameHeader.read(frame("commit"), 0);

    CommitRequest request =
        new CommitRequest()
            .put("version", arguments.get("version").asLong())
            .put("base_checkpoint_id", arguments.get("base_checkpoint_id").asText())
            .putJson("column_families", arguments.get("column_families").toString())
            .put("max_cf_id", arguments.get("max_cf_id").asLong())
            .putJson("attempt", arguments.get("attempt").toString())
            .put("snapshot", arguments.get("snapshot").asBoolean())
            .put("track_counts", arguments.get("track_counts").asBoolean())
            .put("are_distinct", arguments.get("are_distinct").asBoolean())
            .put("expected_rows", arguments.get("expected_rows").asLong())
            .put("expected_digest", arguments.get("expected_digest").asLong());
    CommitRequest.Sent sent =
        new CommitRequest.Sent(arguments.get("frames").asLong(), arguments.get("rows").asLong());
    byte[] written = Frames.commit(header.session(), header.sequence(), request, sent);

    FrameHeader found = FrameHeader.read(written, 0);
    assertHeader(meaning("commit").get("header"), found);
    assertEquals(written.length - FrameHeader.BYTES, found.payloadBytes());
    byte[] payload = Arrays.copyOfRange(written, FrameHeader.BYTES, written.length);
    assertEquals(arguments, Json.read(payload, payload.length));
  }

  /** A name with a quote, or a null, must not become other JSON. */
  @Test
  void textsOfCommitsAreQuoted() {
    String name = "a\"b\\c\u0001\u00e9\ud83d\ude00";
    CommitRequest request = new CommitRequest().put("name", name).put("none", (String) null);
    CommitRequest.Sent sent = new CommitRequest.Sent(1, 2);

    byte[] written = Frames.commit(1, 2, request, sent);

    byte[] payload = Arrays.copyOfRange(written, FrameHeader.BYTES, written.length);
    JsonNode found = Json.read(payload, payload.length);
    assertEquals(name, found.get("name").asText());
    assertTrue(found.get("none").isNull());
    assertEquals(2, found.get("rows").asInt());
    assertArrayEquals(written, Frames.commit(1, 2, request, sent), "a commit may be sent again");
  }

  @Test
  void repliesToCommitsAreReadWithTheEnginesMeaning() throws IOException {
    byte[] bytes = frame("commit_reply");
    byte[] payload = Arrays.copyOfRange(bytes, FrameHeader.BYTES, bytes.length);

    CommitReply reply = CommitReply.read(FrameHeader.read(bytes, 0), payload);

    JsonNode expected = meaning("commit_reply").get("payload").get("commit_reply");
    assertEquals(expected.get("checkpoint_id").asText(), reply.checkpointId());
    assertEquals(expected.get("changelog_bytes").asLong(), reply.changelogBytes());
    assertEquals(expected.get("snapshot_version").asLong(), reply.snapshotVersion());
    assertEquals(expected.get("estimated_keys").asLong(), reply.estimatedKeys());
    assertEquals(expected.get("memtable_bytes").asLong(), reply.memtableBytes());
    assertEquals(expected.get("sst_bytes").asLong(), reply.sstBytes());
    assertEquals(expected.get("snapshot_bytes_left").asLong(), reply.snapshots().bytesLeft());
    assertEquals(expected.get("lineage_versions").asLong(), reply.snapshots().lineageVersions());
    assertEquals(expected.get("wait_us").asLong(), reply.times().waited());
    assertEquals(expected.get("encode_us").asLong(), reply.times().encode());
    assertEquals(expected.get("put_us").asLong(), reply.times().put());
    assertEquals(expected.get("memory_wait_us").asLong(), reply.times().memoryWait());
    assertEquals(expected.get("snapshot_wait_us").asLong(), reply.times().snapshotWait());
    assertEquals(expected.get("counts").size(), reply.counts().size());
    expected
        .get("counts")
        .properties()
        .forEach(
            count ->
                assertEquals(
                    count.getValue().asLong(),
                    reply.counts().get(Integer.valueOf(count.getKey()))));
  }

  /** A reply that is cut off has no checkpoint id, and must not become one of a version. */
  @Test
  void shortRepliesToCommitsAreRefused() throws IOException {
    byte[] bytes = frame("commit_reply");
    byte[] whole = Arrays.copyOfRange(bytes, FrameHeader.BYTES, bytes.length);
    int rows = FrameHeader.read(bytes, 0).rows();
    int idBytes =
        meaning("commit_reply").at("/payload/commit_reply/checkpoint_id").asText().length();
    for (int length = 0; length <= whole.length - idBytes; length++) {
      assertCommitRefused(Arrays.copyOf(whole, length), rows);
    }
    assertCommitRefused(whole, Integer.MAX_VALUE);
    assertCommitRefused(whole, -1);
  }

  private static void assertCommitRefused(byte[] payload, int rows) {
    FrameHeader header =
        new FrameHeader(FrameKind.COMMIT | FrameKind.REPLY, 0, 1, 1, 0, rows, payload.length);
    CairnException error =
        assertThrows(CairnException.class, () -> CommitReply.read(header, payload));
    assertEquals("CAIRN_PROTOCOL", error.code());
  }

  @Test
  void getsAreWrittenWithTheEnginesMeaning() throws IOException {
    JsonNode rows = meaning("get").get("payload").get("rows");
    short[] families = new short[rows.size()];
    byte[][] keys = new byte[rows.size()][];
    for (int row = 0; row < keys.length; row++) {
      families[row] = (short) rows.get(row).get("cf").asInt();
      keys[row] = bytes(rows.get(row).get("key"));
    }
    BatchWriter writer = new BatchWriter();

    // Like Frames.get, which requests the keys of one family only.
    writer.begin(keys.length);
    writer.shorts(families);
    writer.binary(keys);

    assertWritten("get", writer, schema("cf", U16, "key", BINARY));
  }

  /** A LOOKUP has no Arrow metadata, which may have several forms: its bytes are fixed. */
  @Test
  void lookupsAreWrittenByteForByte() throws IOException {
    JsonNode meaning = meaning("lookup");
    JsonNode header = meaning.get("header");
    JsonNode hex = meaning.get("payload").get("lookup").get("keys");
    byte[][] keys = new byte[hex.size() + 1][];
    for (int row = 0; row < hex.size(); row++) {
      keys[row] = bytes(hex.get(row));
    }
    LookupWriter writer = new LookupWriter();

    int family = meaning.get("payload").get("lookup").get("cf").asInt();
    assertTrue(writer.begin(family, keys, hex.size()));
    writer.finish(
        header.get("kind").asInt(),
        header.get("session").asLong(),
        header.get("sequence").asLong(),
        header.get("applied").asLong());

    int end = writer.start() + writer.length();
    assertArrayEquals(frame("lookup"), Arrays.copyOfRange(writer.array(), writer.start(), end));
  }

  /** The caller then sends a GET. */
  @Test
  void keysOverTheLimitsOfALookupAreNotWritten() {
    byte[][] keys = new byte[LookupWriter.MAX_KEYS + 1][1];
    LookupWriter writer = new LookupWriter();
    byte[][] large = {new byte[LookupWriter.MAX_BYTES - 6]};

    assertTrue(writer.begin(0, keys, LookupWriter.MAX_KEYS));
    assertFalse(writer.begin(0, keys, LookupWriter.MAX_KEYS + 1));
    assertFalse(writer.begin(0, keys, 0));
    assertTrue(writer.begin(0, large, 1));
    large[0] = new byte[LookupWriter.MAX_BYTES - 5];
    assertFalse(writer.begin(0, large, 1));
  }

  @Test
  void repliesToLookupsAreReadWithTheEnginesMeaning() throws IOException {
    byte[] bytes = frame("lookup_reply");
    FrameHeader header = FrameHeader.read(bytes, 0);
    byte[] payload = Arrays.copyOfRange(bytes, FrameHeader.BYTES, bytes.length);
    RowPage rows = new RowPage();

    Frames.readLookup(header, payload, rows);

    JsonNode expected = meaning("lookup_reply").get("payload").get("lookup_reply");
    assertEquals(expected.size(), rows.count);
    assertTrue(rows.more);
    for (int row = 0; row < rows.count; row++) {
      JsonNode cells = expected.get(row);
      assertEquals(cells.get("origin").asInt(), rows.origin[row]);
      assertArrayEquals(
          bytes(cells.get("value")),
          region(rows.data, rows.valueOffset[row], rows.valueLength[row]),
          "row " + row);
    }
  }

  /** A wrong length must never become a value with the bytes of another. */
  @Test
  void corruptRepliesToLookupsAreRefused() throws IOException {
    byte[] bytes = frame("lookup_reply");
    byte[] whole = Arrays.copyOfRange(bytes, FrameHeader.BYTES, bytes.length);
    for (int length = 0; length < whole.length; length++) {
      assertLookupRefused(Arrays.copyOf(whole, length), 4);
    }
    assertLookupRefused(Arrays.copyOf(whole, whole.length + 1), 4);
    assertLookupRefused(whole, 5);
    assertLookupRefused(whole, 3);
    assertLookupRefused(whole, Integer.MAX_VALUE);
    for (int at = 0; at < 4; at++) {
      byte[] otherOrigin = whole.clone();
      otherOrigin[at] = at == 0 || at == 3 ? RowPage.COMMITTED : RowPage.ABSENT;
      assertLookupRefused(otherOrigin, 4);
      byte[] otherLength = whole.clone();
      otherLength[4 + 4 * at + 3] = 0x7F;
      assertLookupRefused(otherLength, 4);
    }
  }

  private static void assertLookupRefused(byte[] payload, int rows) {
    FrameHeader header =
        new FrameHeader(FrameKind.LOOKUP | FrameKind.REPLY, 0, 1, 1, 0, rows, payload.length);
    CairnException error =
        assertThrows(CairnException.class, () -> Frames.readLookup(header, payload, new RowPage()));
    assertEquals("CAIRN_PROTOCOL", error.code());
  }

  @Test
  void scansAreWrittenWithTheEnginesMeaning() throws IOException {
    Object[] columns = {
      "cf",
      U16,
      "from",
      BINARY,
      "from_inclusive",
      U8,
      "to",
      BINARY,
      "limit_rows",
      U32,
      "limit_bytes",
      U32
    };
    for (String name : List.of("scan_all", "scan_range")) {
      JsonNode scan = meaning(name).get("payload").get("rows").get(0);
      BatchWriter writer = new BatchWriter();

      Frames.scan(
          writer,
          new ScanRequest(
              scan.get("cf").asInt(),
              bytes(scan.get("from")),
              scan.get("from_inclusive").asInt() == 1,
              bytes(scan.get("to")),
              scan.get("limit_rows").asInt(),
              scan.get("limit_bytes").asInt()));

      assertWritten(name, writer, schema(columns));
    }
  }

  @Test
  void rangesAreWrittenWithTheEnginesMeaning() throws IOException {
    JsonNode rows = meaning("ranges").get("payload").get("rows");
    byte[][] from = new byte[rows.size()][];
    byte[][] to = new byte[rows.size()][];
    for (int i = 0; i < from.length; i++) {
      from[i] = bytes(rows.get(i).get("from"));
      to[i] = bytes(rows.get(i).get("to"));
    }
    BatchWriter writer = new BatchWriter();

    Frames.ranges(writer, rows.get(0).get("cf").asInt(), from, to, from.length);

    assertWritten("ranges", writer, schema("cf", U16, "from", BINARY, "to", BINARY));
  }

  @Test
  void changesAreRequestedWithTheEnginesMeaning() throws IOException {
    JsonNode changes = meaning("changes").get("payload").get("rows").get(0);
    BatchWriter writer = new BatchWriter();

    Frames.changes(
        writer,
        changes.get("version").asLong(),
        new String(bytes(changes.get("checkpoint_id")), StandardCharsets.UTF_8),
        changes.get("from_row").asLong(),
        changes.get("limit_rows").asInt());

    assertWritten(
        "changes",
        writer,
        schema("version", U64, "checkpoint_id", BINARY, "from_row", U64, "limit_rows", U32));
  }

  private void assertWritten(String name, BatchWriter writer, Schema schema) throws IOException {
    JsonNode expected = meaning(name);
    JsonNode header = expected.get("header");
    writer.finish(
        header.get("kind").asInt(),
        header.get("session").asLong(),
        header.get("sequence").asLong(),
        header.get("applied").asLong());

    byte[] frame = writer.frame().toArray();
    FrameHeader written = FrameHeader.read(frame, 0);
    assertHeader(header, written);
    assertEquals(frame.length - FrameHeader.BYTES, written.payloadBytes());
    assertEquals(0, written.payloadBytes() % 8);
    ByteArrayInputStream payload =
        new ByteArrayInputStream(frame, FrameHeader.BYTES, written.payloadBytes());
    try (BufferAllocator allocator = new RootAllocator();
        VectorSchemaRoot root = VectorSchemaRoot.create(schema, allocator);
        ArrowRecordBatch batch =
            (ArrowRecordBatch)
                MessageSerializer.deserializeMessageBatch(
                    new ReadChannel(Channels.newChannel(payload)), allocator)) {
      new VectorLoader(root).load(batch);
      JsonNode rows = expected.get("payload").get("rows");
      assertEquals(rows.size(), root.getRowCount());
      for (int row = 0; row < rows.size(); row++) {
        for (FieldVector vector : root.getFieldVectors()) {
          assertCell(
              name + " row " + row + " " + vector.getName(),
              rows.get(row).get(vector.getName()),
              vector,
              row);
        }
      }
    }
    assertEquals(0, payload.available(), "bytes after the batch");
  }

  private static void assertCell(String where, JsonNode expected, FieldVector vector, int row) {
    if (vector instanceof VarBinaryVector binary) {
      assertArrayEquals(bytes(expected), binary.isNull(row) ? null : binary.get(row), where);
      return;
    }
    long value;
    if (vector instanceof UInt1Vector number) {
      value = number.get(row) & 0xFF;
    } else if (vector instanceof UInt2Vector number) {
      value = number.get(row);
    } else if (vector instanceof UInt4Vector number) {
      value = Integer.toUnsignedLong(number.get(row));
    } else {
      value = ((UInt8Vector) vector).get(row);
    }
    assertTrue(!vector.isNull(row), where);
    assertEquals(expected.asLong(), value, where);
  }
}
