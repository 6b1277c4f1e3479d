package io.cairn.spark.metadata;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Old entries that S3 refuses to delete, one by one, in an answer that is a success. */
class DeferredDeletesTest {
  private static final int PER_REQUEST = 100;

  @TempDir java.nio.file.Path folder;

  private FakeS3 s3;
  private DeferredDeletes deletes;

  @BeforeEach
  void open() throws IOException {
    s3 = new FakeS3();
    deletes = new DeferredDeletes(s3, new Path("file://" + folder));
  }

  private Path file(int batch) {
    return new Path("file://" + folder + "/" + batch);
  }

  private void add(int first, int end) throws IOException {
    for (int batch = first; batch < end; batch++) {
      Files.writeString(folder.resolve(String.valueOf(batch)), "v1");
      deletes.add(file(batch));
    }
  }

  /** S3 asks for another attempt (InternalError, SlowDown); S3A makes it for single deletions. */
  @Test
  void aNameThatIsRefusedInBulkIsDeletedAlone() throws IOException {
    s3.refusedInBulk.add("7");

    add(0, PER_REQUEST);

    assertEquals(0, folder.toFile().list().length);
    assertFalse(deletes.contains(file(7)));
    assertEquals(1, s3.count("bulk delete"));
    assertEquals(1, s3.count("delete"));
  }

  /** An old entry that stays harms nobody; the query must go on. */
  @Test
  void aNameThatCannotBeDeletedIsTriedAgainLater() throws IOException {
    s3.refusedInBulk.add("7");
    s3.refused.add("7");

    add(0, 2 * PER_REQUEST - 1);

    assertTrue(deletes.contains(file(7)));
    assertEquals(1, s3.count("bulk delete"));
    add(2 * PER_REQUEST - 1, 2 * PER_REQUEST);
    assertEquals(2, s3.count("bulk delete"));
    assertEquals(1, folder.toFile().list().length);

    s3.refused.clear();
    deletes.finish();
    assertFalse(deletes.contains(file(7)));
    assertEquals(0, folder.toFile().list().length);
  }

  /** The name would be used again, or a listing would show it. */
  @Test
  void aNameThatMustBeFreeIsAnErrorIfItIsNot() throws IOException {
    s3.refusedInBulk.add("7");
    s3.refused.add("7");
    add(0, 10);

    var error = assertThrows(IOException.class, () -> deletes.finish(file(7)));

    assertTrue(error.getMessage().contains("/7 cannot be deleted: InternalError"), error::toString);
    assertTrue(deletes.contains(file(7)));
    assertFalse(deletes.contains(file(8)));
  }
}
