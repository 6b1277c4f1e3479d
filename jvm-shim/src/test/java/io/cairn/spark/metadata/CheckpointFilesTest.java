package io.cairn.spark.metadata;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The managers of a log's folder: of two drivers on one checkpoint, one is stopped. */
class CheckpointFilesTest {
  private static final long START_MS = 1_700_000_000_000L;

  @TempDir java.nio.file.Path temporary;

  private final AtomicLong clockMs = new AtomicLong(START_MS);
  private java.nio.file.Path folder;
  private Path root;
  private FakeS3 s3;

  @BeforeEach
  void createFolder() throws IOException {
    folder = Files.createDirectory(temporary.resolve("offsets"));
    root = new Path("file://" + folder);
    s3 = new FakeS3();
  }

  /** A manager as a driver has it after it has opened the log. */
  private S3CheckpointFiles onS3() {
    S3CheckpointFiles files = new S3CheckpointFiles(s3, s3.makeQualified(root), clockMs::get);
    files.list(root, file -> true);
    return files;
  }

  private LocalCheckpointFiles local() throws IOException {
    return LocalCheckpointFiles.of(root, new Configuration()).orElseThrow();
  }

  private void create(CheckpointFileManager files, String name) throws IOException {
    try (var stream = files.createAtomic(new Path(root, name), false)) {
      stream.write("v1".getBytes(StandardCharsets.UTF_8));
    }
  }

  private void createElsewhere(String name) throws IOException {
    Files.writeString(folder.resolve(name), "theirs");
  }

  /** Creates the entry 0; another driver continues from there, and purges the first entries. */
  private void overtake(CheckpointFileManager files) throws IOException {
    create(files, "0");
    Files.delete(folder.resolve("0"));
    createElsewhere("101");
    createElsewhere("102.compact");
  }

  private static void assertNames(String entry, FileAlreadyExistsException error) {
    String text = error.getMessage() + " / " + error.getCause().getMessage();
    assertTrue(text.contains("[CAIRN_FENCED] two drivers use one checkpoint"), text);
    assertTrue(text.contains("offsets/" + entry + " exists, written at"), text);
  }

  /** Its machine was suspended; meanwhile another driver created the entry 1, and purged it. */
  @Test
  void aDriverThatSleptThroughThePurgeIsStoppedOnS3() throws IOException {
    S3CheckpointFiles files = onS3();
    overtake(files);
    clockMs.addAndGet(60_001);

    var error = assertThrows(FileAlreadyExistsException.class, () -> create(files, "1"));

    assertNames("102.compact", error);
    assertThrows(FileAlreadyExistsException.class, () -> create(files, "2"));
  }

  /** Its purge listed the folder after it woke, and before it created the entry. */
  @Test
  void aDriverThatHasListedLaterEntriesIsStoppedOnS3() throws IOException {
    S3CheckpointFiles files = onS3();
    overtake(files);
    clockMs.addAndGet(60_001);
    files.list(root, file -> true);

    var error = assertThrows(FileAlreadyExistsException.class, () -> create(files, "1"));

    assertNames("102.compact", error);
  }

  @Test
  void aDriverThatSleptThroughThePurgeIsStoppedInALocalFolder() throws IOException {
    LocalCheckpointFiles files = local();
    overtake(files);

    var error = assertThrows(FileAlreadyExistsException.class, () -> create(files, "1"));

    assertNames("102.compact", error);
  }

  /** Each batch would take one round trip more. */
  @Test
  void entriesInShortIntervalsAreNotListed() throws IOException {
    S3CheckpointFiles files = onS3();
    s3.requests.clear();

    for (int batch = 0; batch < 10; batch++) {
      create(files, String.valueOf(batch));
      clockMs.addAndGet(60_000);
    }
    assertEquals(0, s3.count("LIST"));

    clockMs.addAndGet(1);
    create(files, "10");
    create(files, "11");
    assertEquals(1, s3.count("LIST"));
  }

  /** Async progress tracking skips entries, and a repaired log continues after its last one. */
  @Test
  void aLogMayHaveGapsAndOtherFiles() throws IOException {
    for (CheckpointFileManager files : new CheckpointFileManager[] {onS3(), local()}) {
      String more = files.isLocal() ? "0" : "";
      createElsewhere("999_schema");
      createElsewhere(".99.tmp");
      for (String name : new String[] {"3", "4", "7.compact", "8"}) {
        clockMs.addAndGet(3_600_000);
        create(files, name + more);
      }
    }
  }

  /** Only the folder of the manager is a log; Spark rolls others back without deleting entries. */
  @Test
  void filesInFoldersBelowAreNoEntries() throws IOException {
    for (CheckpointFileManager files : new CheckpointFileManager[] {onS3(), local()}) {
      Path below = new Path(root, "metadata" + files.isLocal());
      files.mkdirs(below);
      create(files, below.getName() + "/9");
      clockMs.addAndGet(3_600_000);
      create(files, below.getName() + "/8");
    }
  }

  /** NFS: the client repeats the link and meets its own name. */
  @Test
  void aLinkWhoseAnswerWasLostIsOwnSuccess() throws IOException {
    LocalCheckpointFiles files = local();
    Path unfinished = new Path(root, ".0.tmp");
    try (var stream = files.createTempFile(unfinished)) {
      stream.write(7);
    }
    Files.createLink(folder.resolve("0"), folder.resolve(".0.tmp"));

    files.renameTempFile(unfinished, new Path(root, "0"), false);

    assertEquals(1, Files.size(folder.resolve("0")));
    assertFalse(Files.exists(folder.resolve(".0.tmp")));
  }

  /** Some versions of Java refuse to "create" it (JDK-8294193). */
  @Test
  void aFolderMayBeASymbolicLink() throws IOException {
    Files.createSymbolicLink(temporary.resolve("link"), folder);
    root = new Path("file://" + temporary.resolve("link"));

    create(local(), "0");

    assertTrue(Files.exists(folder.resolve("0")));
  }
}
