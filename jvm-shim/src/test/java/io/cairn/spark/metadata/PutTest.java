package io.cairn.spark.metadata;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.SocketTimeoutException;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A PUT that fails: repeated, given up, or interrupted by the end of its query. */
class PutTest {
  @TempDir java.nio.file.Path folder;

  private final IOException refusal = new IOException("503 Slow Down");
  private FakeS3 s3;
  private Path file;

  @BeforeEach
  void open() throws IOException {
    s3 = new FakeS3();
    file = new Path("file://" + folder + "/0");
  }

  private void send() throws IOException {
    Put.creating(s3, file).send(new byte[3]);
  }

  @Test
  void aFailedPutIsRepeated() throws IOException {
    s3.putFailures.add(refusal);

    send();

    assertEquals(3, s3.getFileStatus(file).getLen());
  }

  /** Names of headers have no case, and a proxy may capitalise them. */
  @Test
  void ownSuccessIsRecognisedByAHeaderInCapitals() throws IOException {
    s3.capitalises = true;
    s3.lostAnswers.add(refusal);

    send();

    assertEquals(3, s3.getFileStatus(file).getLen());
  }

  /** Spark takes any other exception for a failure of the query that was stopped. */
  @Test
  void aQueryStoppedBetweenTwoAttemptsIsInterrupted() {
    s3.putFailures.add(refusal);
    Thread.currentThread().interrupt();

    var error = assertThrows(InterruptedIOException.class, this::send);

    assertTrue(Thread.interrupted());
    assertSame(refusal, error.getCause());
  }

  @Test
  void aQueryStoppedWhileTheObjectIsAskedForIsInterrupted() {
    s3.putFailures.add(refusal);
    s3.attributesFailure = new InterruptedIOException("interrupted");

    var error = assertThrows(InterruptedIOException.class, this::send);

    assertSame(s3.attributesFailure, error);
    assertArrayEquals(new Throwable[] {refusal}, error.getSuppressed());
  }

  /** Its class says interrupted, too, but the query was not stopped. */
  @Test
  void aTimeoutIsAFailure() {
    s3.putFailures.add(refusal);
    s3.attributesFailure = new SocketTimeoutException("Read timed out");

    assertSame(refusal, assertThrows(IOException.class, this::send));
  }
}
