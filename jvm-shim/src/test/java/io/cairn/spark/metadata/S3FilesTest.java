package io.cairn.spark.metadata;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;

import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The file systems of several buckets, of which some take long to initialize, or fail. */
@Timeout(30)
class S3FilesTest {
  /** Buckets that share no bin of a small hash table with each other are fewer. */
  private static final int OTHERS = 64;

  /** Instances that began to initialize, by bucket. */
  private static final ConcurrentHashMap<String, AtomicInteger> STARTS = new ConcurrentHashMap<>();

  /** What each initialization waits for: a bucket without one does not wait. */
  private static final ConcurrentHashMap<String, CountDownLatch> WAITS = new ConcurrentHashMap<>();

  /** How many of the next initializations of a bucket fail. */
  private static final ConcurrentHashMap<String, AtomicInteger> FAILURES =
      new ConcurrentHashMap<>();

  private final Configuration hadoop = new Configuration();

  /** Of this test alone: the file systems stay until the end of the JVM. */
  private final String bucket = "b-" + UUID.randomUUID();

  /** A file system whose credentials come from a service. Public for Hadoop. */
  public static final class Bucket extends RawLocalFileSystem {
    private URI uri;

    @Override
    public void initialize(URI name, Configuration conf) throws IOException {
      uri = name;
      String host = name.getHost();
      STARTS.computeIfAbsent(host, any -> new AtomicInteger()).incrementAndGet();
      CountDownLatch wait = WAITS.get(host);
      if (wait != null) {
        try {
          wait.await();
        } catch (InterruptedException e) {
          throw new IOException(e);
        }
      }
      AtomicInteger failures = FAILURES.get(host);
      if (failures != null && failures.getAndDecrement() > 0) {
        throw new IOException("no credentials");
      }
    }

    @Override
    public URI getUri() {
      return uri == null ? URI.create("bucket:///") : uri; // the constructor asks for it
    }
  }

  @BeforeEach
  void register() {
    hadoop.set("fs.bucket.impl", Bucket.class.getName());
  }

  private FileSystem ofJob(String name) throws IOException {
    Bucket files = new Bucket();
    files.uri = URI.create("bucket://" + name);
    return files;
  }

  private CompletableFuture<FileSystem> intercepted(FileSystem ofJob) {
    return CompletableFuture.supplyAsync(
        () -> {
          try {
            return S3Files.intercepted(ofJob, hadoop);
          } catch (IOException e) {
            throw new IllegalStateException(e);
          }
        },
        work -> new Thread(work).start());
  }

  /** Queries on other buckets would stand still for as long as one service does not answer. */
  @Test
  void aBucketWhoseTokenServiceDoesNotAnswerKeepsNoOtherWaiting() throws Exception {
    CountDownLatch answer = new CountDownLatch(1);
    WAITS.put(bucket, answer);
    FileSystem ofJob = ofJob(bucket);
    List<CompletableFuture<FileSystem>> waiting = List.of(intercepted(ofJob), intercepted(ofJob));
    while (!STARTS.containsKey(bucket)) {
      Thread.onSpinWait();
    }

    List<CompletableFuture<FileSystem>> others = new ArrayList<>();
    for (int i = 0; i < OTHERS; i++) {
      others.add(intercepted(ofJob(bucket + "-" + i)));
    }

    for (CompletableFuture<FileSystem> other : others) {
      other.get(10, TimeUnit.SECONDS);
    }
    answer.countDown();
    FileSystem files = waiting.get(0).get(10, TimeUnit.SECONDS);
    assertNotSame(ofJob, files);
    assertSame(files, waiting.get(1).get(10, TimeUnit.SECONDS));
    assertEquals(1, STARTS.get(bucket).get());
  }

  /** One failure would cost every PUT of the process a round trip. */
  @Test
  void aFileSystemThatCouldNotBeInitializedIsTriedAgain() throws Exception {
    FAILURES.put(bucket, new AtomicInteger(1));
    FileSystem ofJob = ofJob(bucket);

    assertSame(ofJob, S3Files.intercepted(ofJob, hadoop));
    FileSystem files = S3Files.intercepted(ofJob, hadoop);

    assertNotSame(ofJob, files);
    assertSame(files, S3Files.intercepted(ofJob(bucket), hadoop));
  }
}
