package io.cairn.spark.files;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.protocol.FileRequest;
import io.cairn.spark.protocol.FrameHeader;
import io.cairn.spark.protocol.FrameKind;
import io.cairn.spark.protocol.Json;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.util.Progressable;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The requests of a storage connection, on Hadoop's local file system and on faulty ones. */
class FileServiceTest {
  @TempDir Path folder;

  private final Frames frames = new Frames();
  private final FileService service = new FileService(frames);
  private int local;

  @BeforeEach
  void register() {
    local = FileSystems.register(new org.apache.hadoop.fs.Path("file:///"), new Configuration());
  }

  /** The frames of a connection, without a socket. */
  private static final class Frames implements FileService.Connection {
    final ArrayDeque<byte[]> incoming = new ArrayDeque<>();
    final List<byte[]> sent = new ArrayList<>();
    byte[] payload = new byte[0];
    boolean isBroken;

    @Override
    public void send(byte[] frame) {
      if (isBroken) {
        throw CairnException.workerLost("the connection broke", null);
      }
      sent.add(frame);
    }

    @Override
    public FrameHeader receive() {
      byte[] frame = incoming.poll();
      if (frame == null) {
        isBroken = true;
        throw CairnException.workerLost("the engine closed it", null);
      }
      payload = Arrays.copyOfRange(frame, FrameHeader.BYTES, frame.length);
      return FrameHeader.read(frame, 0);
    }

    @Override
    public byte[] payload() {
      return payload;
    }

    @Override
    public boolean isBroken() {
      return isBroken;
    }
  }

  private static byte[] frame(int kind, int flags, long files, int rows, byte[] payload) {
    byte[] frame = new byte[FrameHeader.BYTES + payload.length];
    new FrameHeader(kind, flags, files, 9, 0, rows, payload.length).write(frame, 0);
    System.arraycopy(payload, 0, frame, FrameHeader.BYTES, payload.length);
    return frame;
  }

  private List<byte[]> request(int kind, long files, int rows, byte[] payload) {
    frames.sent.clear();
    frames.incoming.addFirst(frame(kind, 0, files, rows, payload));
    service.serve(frames.receive());
    for (byte[] reply : frames.sent) {
      FrameHeader header = FrameHeader.read(reply, 0);
      assertEquals(files, header.session());
      assertEquals(9, header.sequence());
    }
    return frames.sent;
  }

  private static byte[] bytes(byte[] head, String... paths) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.writeBytes(head);
    for (String path : paths) {
      out.writeBytes(path.getBytes(StandardCharsets.UTF_8));
    }
    return out.toByteArray();
  }

  private static ByteBuffer little(int bytes) {
    return ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static byte[] payload(byte[] frame) {
    return Arrays.copyOfRange(frame, FrameHeader.BYTES, frame.length);
  }

  private static int kind(List<byte[]> replies) {
    return FrameHeader.read(replies.get(replies.size() - 1), 0).kind();
  }

  private List<byte[]> write(long files, int mode, String path, byte[]... parts) {
    for (int number = 0; number < parts.length; number++) {
      int flags = number < parts.length - 1 ? FrameKind.FLAG_MORE : 0;
      frames.incoming.add(frame(FrameKind.FILE_DATA, flags, files, 0, parts[number]));
    }
    return request(FrameKind.FILE_WRITE, files, 0, bytes(new byte[] {(byte) mode}, path));
  }

  private List<byte[]> rename(long files, boolean replaces, String from, String to) {
    byte[] head =
        little(5)
            .put((byte) (replaces ? 1 : 0))
            .putInt(from.getBytes(StandardCharsets.UTF_8).length)
            .array();
    return request(FrameKind.FILE_RENAME, files, 0, bytes(head, from, to));
  }

  private List<byte[]> read(String path, long offset, long length) {
    byte[] head = little(16).putLong(offset).putLong(length).array();
    return request(FrameKind.FILE_READ, local, 0, bytes(head, path));
  }

  private static String code(List<byte[]> replies) {
    byte[] last = replies.get(replies.size() - 1);
    assertEquals(FrameKind.ERROR, FrameHeader.read(last, 0).kind());
    JsonNode error = Json.read(payload(last), last.length - FrameHeader.BYTES);
    return error.get("code").asText();
  }

  private String path(String name) {
    return folder.resolve(name).toString();
  }

  /** A worker whose memory is damaged must not end the threads that serve all its stores. */
  @Test
  void anyBytesAreAnsweredOrRefused() {
    Random random = new Random(7);
    int[] kinds = {0, 0x0A, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x91, 0xFF};
    byte[][] payloads = {
      bytes(new byte[0], "/a"),
      bytes(little(16).putLong(0).putLong(9).array(), "/a"),
      bytes(little(5).put((byte) 1).putInt(2).array(), "/a", "/b"),
      bytes(little(6).putInt(2).put(new byte[] {'/', 'a'}).array()),
    };
    int answered = 0;
    for (int number = 0; number < 50_000; number++) {
      byte[] payload = payloads[random.nextInt(payloads.length)].clone();
      for (int change = random.nextInt(3); change > 0; change--) {
        payload[random.nextInt(payload.length)] = (byte) random.nextInt();
      }
      payload = Arrays.copyOf(payload, random.nextInt(payload.length + 1));
      int rows = random.nextBoolean() ? 1 : random.nextInt(Integer.MAX_VALUE);
      long files = random.nextBoolean() ? Long.MIN_VALUE | local : 1 << 20;
      frames.isBroken = false;
      try {
        // Of a file system that does not exist: no file is touched.
        answered += request(kinds[random.nextInt(kinds.length)], files, rows, payload).size();
      } catch (CairnException e) {
        assertTrue(e.getMessage().startsWith("[CAIRN_"), e.getMessage());
      }
    }
    assertTrue(answered > 1000, "answered " + answered);
  }

  /** Bytes survive a write and a read, in parts of any size, and in ranges. */
  @Test
  void aWrittenFileIsReadInFramesOfALimitedSize() throws IOException {
    byte[] whole = new byte[(5 << 19) + 17];
    new java.util.Random(7).nextBytes(whole);

    List<byte[]> written =
        write(
            local,
            0,
            path("a b/%20ü"),
            Arrays.copyOf(whole, 1 << 20),
            Arrays.copyOfRange(whole, 1 << 20, whole.length),
            new byte[0]);

    assertEquals(FrameKind.FILE_WRITE | FrameKind.REPLY, kind(written));
    assertEquals(
        whole.length,
        ByteBuffer.wrap(payload(written.get(0))).order(ByteOrder.LITTLE_ENDIAN).getLong());
    assertArrayEquals(whole, Files.readAllBytes(folder.resolve("a b/%20ü")));
    for (long[] range : new long[][] {{0, 1L << 40}, {3, 1 << 20}, {(5 << 19), 100}, {0, 1}}) {
      List<byte[]> replies = read(path("a b/%20ü"), range[0], range[1]);
      ByteArrayOutputStream found = new ByteArrayOutputStream();
      for (int number = 0; number < replies.size(); number++) {
        FrameHeader header = FrameHeader.read(replies.get(number), 0);
        assertEquals(number < replies.size() - 1, header.hasMore());
        assertTrue(header.payloadBytes() <= FileRequest.MAX_DATA_BYTES);
        if (number > 0) {
          found.writeBytes(payload(replies.get(number)));
        }
      }
      assertEquals(
          whole.length,
          ByteBuffer.wrap(payload(replies.get(0))).order(ByteOrder.LITTLE_ENDIAN).getLong());
      int end = (int) Math.min(whole.length, range[0] + range[1]);
      assertArrayEquals(Arrays.copyOfRange(whole, (int) range[0], end), found.toByteArray());
    }
  }

  @Test
  void aReadOfNothingHasTheStatusAlone() throws IOException {
    Files.write(folder.resolve("empty"), new byte[0]);
    Files.write(folder.resolve("full"), new byte[10]);

    for (List<byte[]> replies :
        List.of(
            List.copyOf(read(path("empty"), 0, 10)),
            List.copyOf(read(path("full"), 0, 0)),
            List.copyOf(read(path("full"), 99, 10)))) {
      assertEquals(1, replies.size());
      assertFalse(FrameHeader.read(replies.get(0), 0).hasMore());
      assertEquals(FileRequest.STATUS_BYTES, payload(replies.get(0)).length);
    }
  }

  @Test
  void errorsAreNamed() throws IOException {
    Files.createDirectory(folder.resolve("dir"));
    Files.write(folder.resolve("dir/file"), new byte[3]);

    assertEquals("CAIRN_MISSING", code(read(path("none"), 0, 10)));
    assertEquals("CAIRN_MISSING", code(read(path("dir"), 0, 10)));
    assertEquals("CAIRN_OBJECT_EXISTS", code(write(local, 1, path("dir/file"), new byte[1])));
    assertEquals(
        "CAIRN_PROTOCOL", code(request(FrameKind.FILE_STATUS, 999, 0, bytes(new byte[0], "/x"))));
    assertEquals(3, Files.size(folder.resolve("dir/file")));
  }

  @Test
  void aRenameReplacesOnlyIfItMay() throws IOException {
    write(local, 0, path("new"), "new".getBytes(StandardCharsets.UTF_8));
    write(local, 0, path("old"), "old".getBytes(StandardCharsets.UTF_8));

    assertEquals("CAIRN_OBJECT_EXISTS", code(rename(local, false, path("new"), path("old"))));
    assertEquals("old", Files.readString(folder.resolve("old")));
    assertEquals(
        FrameKind.FILE_RENAME | FrameKind.REPLY,
        kind(rename(local, true, path("new"), path("old"))));
    assertEquals("new", Files.readString(folder.resolve("old")));
    assertEquals("CAIRN_MISSING", code(rename(local, false, path("new"), path("other"))));
  }

  @Test
  void aFolderIsListedWithAllThatIsBelow() throws IOException {
    for (String name : List.of("s/one", "s/deep/er/two", "s/.hidden", "outside")) {
      write(local, 0, path(name), new byte[5]);
    }

    byte[] reply = request(FrameKind.FILE_LIST, local, 0, bytes(new byte[0], path("s"))).get(0);

    ByteBuffer rows = ByteBuffer.wrap(payload(reply)).order(ByteOrder.LITTLE_ENDIAN);
    TreeSet<String> names = new TreeSet<>();
    while (rows.hasRemaining()) {
      assertEquals(5, rows.getLong());
      assertTrue(Math.abs(rows.getLong() - System.currentTimeMillis()) < 60_000);
      byte[] name = new byte[rows.getInt()];
      rows.get(name);
      names.add(new String(name, StandardCharsets.UTF_8));
    }
    names.removeIf(name -> name.endsWith(".crc"));
    assertEquals(new TreeSet<>(List.of("one", "deep/er/two", ".hidden")), names);
    List<byte[]> absent = request(FrameKind.FILE_LIST, local, 0, bytes(new byte[0], path("none")));
    assertEquals(0, payload(absent.get(0)).length);
  }

  /** A sweep that sees a part of the files takes what they name for orphans. */
  @Test
  void aFolderThatVanishesWhileItIsListedIsNoShortOne() {
    write(local, 0, path("s/one"), new byte[5]);
    write(local, 0, path("s/two"), new byte[5]);
    Configuration conf = new Configuration();
    conf.setClass("fs.vanishing.impl", Vanishing.class, FileSystem.class);
    int files = FileSystems.register(new org.apache.hadoop.fs.Path("vanishing:///x"), conf);
    byte[] listed = bytes(new byte[0], path("s"));

    Vanishing.entries = 1;
    assertEquals("CAIRN_STORAGE_UNAVAILABLE", code(request(FrameKind.FILE_LIST, files, 0, listed)));
    Vanishing.entries = 0;
    assertEquals(0, payload(request(FrameKind.FILE_LIST, files, 0, listed).get(0)).length);
  }

  @Test
  void deletionLeavesFoldersAndIgnoresWhatIsGone() throws IOException {
    write(local, 0, path("d/one"), new byte[5]);
    write(local, 0, path("two"), new byte[5]);
    ByteArrayOutputStream paths = new ByteArrayOutputStream();
    for (String name : List.of("none", "d", "two")) {
      byte[] path = path(name).getBytes(StandardCharsets.UTF_8);
      paths.writeBytes(little(4).putInt(path.length).array());
      paths.writeBytes(path);
    }

    List<byte[]> replies = request(FrameKind.FILE_DELETE, local, 3, paths.toByteArray());

    assertEquals(FrameKind.FILE_DELETE | FrameKind.REPLY, kind(replies));
    assertFalse(Files.exists(folder.resolve("two")));
    assertTrue(Files.exists(folder.resolve("d/one")));
  }

  /** A worker that dies in the middle of a write leaves nothing that looks like a file. */
  @Test
  void anUnfinishedFileIsDeleted() {
    frames.incoming.add(frame(FrameKind.FILE_DATA, FrameKind.FLAG_MORE, local, 0, new byte[100]));

    assertThrows(
        CairnException.class,
        () -> request(FrameKind.FILE_WRITE, local, 0, bytes(new byte[] {0}, path("half"))));

    assertFalse(Files.exists(folder.resolve("half")));
  }

  /** Somebody calls FileSystem.closeAll(): the next request opens the file system again. */
  @Test
  void aClosedFileSystemIsOpenedAgain() throws IOException {
    Configuration conf = new Configuration();
    conf.setClass("fs.closable.impl", Closable.class, FileSystem.class);
    int files = FileSystems.register(new org.apache.hadoop.fs.Path("closable:///x"), conf);
    write(files, 0, path("one"), new byte[1]);
    int opened = Closable.opened;

    FileSystem.closeAll();
    List<byte[]> replies = write(files, 0, path("two"), new byte[2]);

    assertEquals(FrameKind.FILE_WRITE | FrameKind.REPLY, kind(replies));
    assertEquals(opened + 1, Closable.opened);
    assertEquals(2, Files.size(folder.resolve("two")));
  }

  /** It is closed in the middle of a read: the bytes must not come twice. */
  @Test
  void aReadThatHasBegunIsNotRepeated() throws IOException {
    Configuration conf = new Configuration();
    conf.setClass("fs.closable.impl", Closable.class, FileSystem.class);
    int files = FileSystems.register(new org.apache.hadoop.fs.Path("closable:///x"), conf);
    write(files, 0, path("one"), new byte[1000]);
    Closable.closesWhileReading = true;

    List<byte[]> replies;
    try {
      byte[] head = little(16).putLong(0).putLong(1 << 20).array();
      replies = request(FrameKind.FILE_READ, files, 0, bytes(head, path("one")));
    } finally {
      Closable.closesWhileReading = false;
    }

    assertEquals(2, replies.size());
    assertEquals(FileRequest.STATUS_BYTES, payload(replies.get(0)).length);
    assertEquals("CAIRN_STORAGE_UNAVAILABLE", code(replies));
  }

  /** A file system that has neither FileContext nor a rename that refuses to replace. */
  @Test
  void aRenameWithoutFileContextRefusesToReplaceToo() throws IOException {
    Configuration conf = new Configuration();
    conf.setClass("fs.closable.impl", Closable.class, FileSystem.class);
    int files = FileSystems.register(new org.apache.hadoop.fs.Path("closable:///x"), conf);
    write(files, 0, path("new"), "new".getBytes(StandardCharsets.UTF_8));
    write(files, 0, path("old"), "old".getBytes(StandardCharsets.UTF_8));

    assertEquals("CAIRN_OBJECT_EXISTS", code(rename(files, false, path("new"), path("old"))));
    assertEquals("old", Files.readString(folder.resolve("old")));
    rename(files, true, path("new"), path("old"));
    assertEquals("new", Files.readString(folder.resolve("old")));
    assertEquals("CAIRN_MISSING", code(rename(files, false, path("new"), path("other"))));
  }

  /** A failure in the middle of a write is reported once all of its frames were read. */
  @Test
  void aFailingWriteAnswersOnceAndKeepsTheConnection() throws IOException {
    Files.write(folder.resolve("taken"), new byte[3]);

    List<byte[]> replies = write(local, 1, path("taken"), new byte[9], new byte[9], new byte[9]);

    assertEquals(1, replies.size());
    assertEquals("CAIRN_OBJECT_EXISTS", code(replies));
    assertTrue(frames.incoming.isEmpty());
    assertFalse(frames.isBroken);
  }

  /** Object stores find out at the end that another writer created the file. */
  @Test
  void aLostRaceIsAnExistingFile() throws IOException {
    IOException refusal = new IOException("412 Precondition Failed\nPUT https://host/x");
    IOException upload = new IOException("Upload failed", refusal);

    assertEquals("CAIRN_OBJECT_EXISTS", code(writeFailing(1, () -> failWith(upload))));
    assertEquals("CAIRN_STORAGE_UNAVAILABLE", code(writeFailing(0, () -> failWith(upload))));
    IOException other = new IOException("Upload failed", new IOException("503 Slow Down"));
    assertEquals("CAIRN_STORAGE_UNAVAILABLE", code(writeFailing(1, () -> failWith(other))));
  }

  /** Connectors take buffers of many MiB per file; the connection must go on without them. */
  @Test
  void withoutMemoryForAWriteTheConnectionGoesOn() throws IOException {
    List<byte[]> replies =
        writeFailing(
            1,
            () -> {
              throw new OutOfMemoryError("Java heap space");
            });

    assertEquals("CAIRN_STORAGE_UNAVAILABLE", code(replies));
    assertTrue(new String(payload(replies.get(0)), StandardCharsets.UTF_8).contains("memory"));
    assertTrue(frames.incoming.isEmpty());
    assertFalse(frames.isBroken);
  }

  /** A jar of the connector is missing or of another version: its thread must go on. */
  @Test
  void aClassThatAConnectorLacksIsNamed() throws IOException {
    for (LinkageError error :
        List.of(
            new NoClassDefFoundError("org/example/Missing"),
            new NoSuchMethodError("org.example.Missing.call()"),
            new ExceptionInInitializerError(new IllegalStateException("org.example.Missing")))) {
      List<byte[]> replies =
          writeFailing(
              1,
              () -> {
                throw error;
              });

      assertEquals("CAIRN_SCHEME", code(replies));
      String text = new String(payload(replies.get(0)), StandardCharsets.UTF_8);
      assertTrue(text.contains("missing or of another version"), text);
      assertTrue(text.replace('/', '.').contains("org.example.Missing"), text);
      assertTrue(text.contains("add the jars that it needs"), text);
      assertTrue(frames.incoming.isEmpty());
      assertFalse(frames.isBroken);
    }
  }

  @Test
  void aConnectorThatCannotBeInitializedIsRefusedBeforeAnythingStarts() {
    Configuration conf = new Configuration();
    conf.set("fs.unusable.impl", Unusable.class.getName());

    CairnException error =
        assertThrows(
            CairnException.class,
            () -> FileSystems.register(new org.apache.hadoop.fs.Path("unusable://host/x"), conf));

    assertEquals("CAIRN_SCHEME", error.code());
    assertEquals(ErrorKind.INVALID, error.kind());
    assertTrue(error.getMessage().contains("no native library"), error.getMessage());
  }

  /** Writes a file whose close does what {@code onClose} does. */
  private List<byte[]> writeFailing(int mode, Runnable onClose) throws IOException {
    Configuration conf = new Configuration();
    conf.setClass("fs.closable.impl", Closable.class, FileSystem.class);
    int files = FileSystems.register(new org.apache.hadoop.fs.Path("closable:///x"), conf);
    Closable.onClose = onClose;
    try {
      return List.copyOf(write(files, mode, path("failing"), new byte[9], new byte[9]));
    } finally {
      Closable.onClose = null;
      Files.deleteIfExists(folder.resolve("failing"));
    }
  }

  private static void failWith(IOException error) {
    throw new UncheckedIOException(error);
  }

  @Test
  void anUnknownSchemeIsRefusedBeforeAnythingStarts() {
    CairnException error =
        assertThrows(
            CairnException.class,
            () ->
                FileSystems.register(
                    new org.apache.hadoop.fs.Path("nosuch://host/x"), new Configuration()));

    assertEquals("CAIRN_SCHEME", error.code());
    assertEquals(ErrorKind.INVALID, error.kind());
    assertTrue(error.getMessage().contains("nosuch"), error.getMessage());
  }

  /** Hadoop's defaults name the classes of abfs and gs, whose jars are not Spark's. */
  @Test
  void aKnownSchemeWithoutItsJarIsNamed() {
    Configuration conf = new Configuration();
    conf.set("fs.jarless.impl", "org.example.NoSuchFileSystem");

    CairnException error =
        assertThrows(
            CairnException.class,
            () -> FileSystems.register(new org.apache.hadoop.fs.Path("jarless://host/x"), conf));

    assertEquals("CAIRN_SCHEME", error.code());
    assertTrue(
        error.getMessage().contains("org.example.NoSuchFileSystem not found"), error.getMessage());
  }

  @Test
  void errorsOfServersHaveCairnsCodesAndNoSignature() {
    String quota = "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException";
    String token = "org.apache.hadoop.security.token.SecretManager$InvalidToken";
    assertEquals("CAIRN_DISK_FULL", translated(remote(quota)).code());
    assertEquals("CAIRN_CREDENTIALS_EXPIRED", translated(remote(token)).code());
    assertEquals(
        "CAIRN_OBJECT_EXISTS",
        translated(remote("org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException")).code());
    assertEquals("CAIRN_MISSING", translated(new IOException(new FileNotFoundException())).code());
    CairnException setting =
        FileErrors.translate(new NumberFormatException("64m"), "x://host/file");
    assertEquals("CAIRN_CONFIG", setting.code());
    assertTrue(setting.getMessage().contains("not a number"), setting.getMessage());
    CairnException unknown = translated(new IOException("GET https://host/x?sig=s3cret failed"));
    assertEquals("CAIRN_STORAGE_UNAVAILABLE", unknown.code());
    assertFalse(unknown.getMessage().contains("s3cret"), unknown.getMessage());
  }

  /** Java says it by the class for a file that does not exist: a version would count as lost. */
  @Test
  void tooManyOpenFilesAreNoMissingFile() {
    FileNotFoundException error =
        new FileNotFoundException("/checkpoint/changelog/17.arrow (Too many open files)");

    assertEquals("CAIRN_OPEN_FILES", translated(error).code());
    assertEquals("CAIRN_OPEN_FILES", translated(new IOException(error)).code());
    assertEquals(ErrorKind.RETRY, translated(error).kind());
    assertFalse(FileErrors.isMissing(error));
    String ofMachine = "Too many open files in system";
    String text = translated(new IOException("/a: " + ofMachine)).getMessage();
    assertTrue(text.contains("failed: " + ofMachine + "; this JVM"), text);
  }

  /** Hadoop wraps it as if the name were invalid; names come and go with DNS. */
  @Test
  void aHostThatIsNotKnownIsNoBadName() {
    UnknownHostException unknown = new UnknownHostException("namenode-1");
    for (Exception error : List.of(unknown, new IllegalArgumentException(unknown))) {
      CairnException translated = FileErrors.translate(error, "hdfs://namenode-1/x");

      assertEquals("CAIRN_STORAGE_UNAVAILABLE", translated.code());
      assertEquals(ErrorKind.RETRY, translated.kind());
      assertTrue(translated.getMessage().contains("the host is not known"));
      assertTrue(translated.getMessage().contains("namenode-1"));
      assertTrue(translated.getMessage().contains("HADOOP_CONF_DIR"));
    }
  }

  private static IOException remote(String name) {
    return new org.apache.hadoop.ipc.RemoteException(name, "a message");
  }

  private static CairnException translated(IOException error) {
    return FileErrors.translate(error, "x://host/file");
  }

  /** A file system whose class cannot be initialized. */
  public static final class Unusable extends RawLocalFileSystem {
    static final int LIBRARY = load();

    private static int load() {
      throw new IllegalStateException("no native library");
    }
  }

  /** A local file system whose folders vanish after some of their entries. */
  public static final class Vanishing extends RawLocalFileSystem {
    static int entries;

    @Override
    public URI getUri() {
      return URI.create("vanishing:///");
    }

    @Override
    public RemoteIterator<FileStatus> listStatusIterator(org.apache.hadoop.fs.Path folder)
        throws IOException {
      FileStatus[] found = listStatus(folder);
      return new RemoteIterator<>() {
        private int taken;

        @Override
        public boolean hasNext() throws IOException {
          if (taken == entries) {
            throw new FileNotFoundException(folder + " does not exist");
          }
          return true;
        }

        @Override
        public FileStatus next() {
          return found[taken++];
        }
      };
    }
  }

  /** A local file system that fails after {@code close}, as those of servers do. */
  public static final class Closable extends RawLocalFileSystem {
    static int opened;
    static boolean closesWhileReading;
    static Runnable onClose;
    private boolean isClosed;

    @Override
    public void initialize(URI uri, Configuration conf) throws IOException {
      super.initialize(uri, conf);
      opened++;
    }

    @Override
    public URI getUri() {
      return URI.create("closable:///");
    }

    @Override
    public FSDataOutputStream create(
        org.apache.hadoop.fs.Path path,
        boolean overwrite,
        int bufferSize,
        short replication,
        long blockSize,
        Progressable progress)
        throws IOException {
      if (isClosed) {
        throw new IOException("Filesystem closed");
      }
      FSDataOutputStream out =
          super.create(path, overwrite, bufferSize, replication, blockSize, progress);
      Runnable closing = onClose;
      if (closing == null) {
        return out;
      }
      return new FSDataOutputStream(out, null) {
        @Override
        public void close() throws IOException {
          out.close();
          try {
            closing.run();
          } catch (UncheckedIOException e) {
            throw e.getCause();
          }
        }
      };
    }

    @Override
    public FSDataInputStream open(org.apache.hadoop.fs.Path path, int bufferSize)
        throws IOException {
      if (!closesWhileReading) {
        return super.open(path, bufferSize);
      }
      return new FSDataInputStream(
          new FSInputStream() {
            @Override
            public int read() throws IOException {
              throw new IOException("Filesystem closed");
            }

            @Override
            public void seek(long position) {}

            @Override
            public long getPos() {
              return 0;
            }

            @Override
            public boolean seekToNewSource(long position) {
              return false;
            }
          });
    }

    @Override
    public void close() throws IOException {
      isClosed = true;
      super.close();
    }
  }
}
