package io.cairn.spark;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.commit;
import static io.cairn.spark.StoreFixture.read;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.security.alias.CredentialProvider;
import org.apache.hadoop.security.alias.CredentialProviderFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import scala.Option;

/**
 * Keys of S3 that are replaced while the query runs, in a credential file of Hadoop's. The server
 * is the stub of the Python tests, which notes the key of each request.
 */
class ReplacedKeysTest {
  /**
   * Answers a line of its input with the requests since the last one, and refuses a key if told.
   */
  private static final String SERVER =
      """
      import sys
      sys.path.insert(0, sys.argv[1])
      from s3_stub import S3Stub, refusal
      refusals = {}
      with S3Stub(answer=lambda request: refusals.get(request.access_key)) as stub:
          print(stub.url, flush=True)
          for line in sys.stdin:
              key, code = line.rstrip('\\n').split(' ')
              if key:
                  refusals[key] = refusal(403, code) if code else (403, {}, b'')
              with stub.lock:
                  noted = [f'{one.method} {one.access_key}' for one in stub.requests]
                  stub.requests.clear()
              print(','.join(noted), flush=True)
      """;

  private final Configuration hadoop = new Configuration(false);
  private StoreFixture fixture;
  private Process server;
  private BufferedReader answers;
  private PrintStream commands;

  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture();
    Path stub =
        Path.of(System.getProperty("cairn.test.root", "."), "python/tests/unit/storage/kit");
    server =
        new ProcessBuilder(
                System.getProperty("cairn.test.python", "python3"), "-c", SERVER, stub.toString())
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    answers = server.inputReader(StandardCharsets.UTF_8);
    commands = new PrintStream(server.getOutputStream(), true, StandardCharsets.UTF_8);
    hadoop.set("sql.streaming.runId", "run");
    hadoop.set("fs.s3a.endpoint", answers.readLine());
    hadoop.set("fs.s3a.endpoint.region", "us-east-1");
    hadoop.set(
        CredentialProviderFactory.CREDENTIAL_PROVIDER_PATH,
        "localjceks://file" + fixture.folder.resolve("keys.jceks"));
    writeKeys("OLD");
  }

  @AfterEach
  void close() throws IOException, InterruptedException {
    fixture.close();
    commands.close();
    server.waitFor();
  }

  /** Writes the credential file anew, as a program that replaces keys does. */
  private void writeKeys(String accessKey) throws IOException {
    Files.deleteIfExists(fixture.folder.resolve("keys.jceks"));
    CredentialProvider file = CredentialProviderFactory.getProviders(hadoop).get(0);
    file.createCredentialEntry("fs.s3a.access.key", accessKey.toCharArray());
    file.createCredentialEntry("fs.s3a.secret.key", ("secret of " + accessKey).toCharArray());
    file.flush();
  }

  /** The methods and keys of the requests since the last call. */
  private List<String> requests() throws IOException {
    return tell(" ");
  }

  private void refuse(String accessKey, String code) throws IOException {
    tell(accessKey + " " + code);
  }

  private List<String> tell(String command) throws IOException {
    commands.println(command);
    String noted = answers.readLine();
    return noted.isEmpty() ? List.of() : List.of(noted.split(","));
  }

  private CairnStateStoreProvider provider() {
    return fixture.provider("s3a://bucket/state", hadoop);
  }

  /**
   * Keys are replaced every few hours in some companies. The query must not end each time; empty: a
   * 403 without a reason, as some servers and proxies answer.
   */
  @ParameterizedTest
  @ValueSource(strings = {"InvalidAccessKeyId", "ExpiredToken", ""})
  void aCommitIsSignedByTheNewKeys(String code) throws IOException {
    CairnStateStoreProvider provider = provider();
    Option<String> first = commit(provider, 0, NO_ID, 1);
    assertEquals(List.of("PUT OLD"), requests());
    writeKeys("NEW");
    refuse("OLD", code);

    Option<String> second = commit(provider, 1, first, 2);

    assertEquals(List.of("PUT OLD", "PUT NEW"), requests());
    Option<String> third = commit(provider, 2, second, 3);
    assertEquals(List.of("PUT NEW"), requests());
    assertEquals(List.of("v1@1", "v2@2", "v3@3"), read(provider(), 3, third, 1, 2, 3));
  }

  /** A partition that did nothing for hours has keys as old. */
  @Test
  void aLoadIsSignedByTheNewKeys() throws IOException {
    CairnStateStoreProvider idle = provider();
    commit(idle, 0, NO_ID, 1);
    CairnStateStoreProvider active = provider();
    Option<String> id = commit(active, 0, NO_ID, 2);
    writeKeys("NEW");
    refuse("OLD", "InvalidAccessKeyId");
    requests();

    assertEquals(List.of("v2@1"), read(idle, 1, id, 2));

    // Before it gives up, a load tries every other way to the version.
    List<String> requests = requests();
    assertEquals(List.of("GET OLD", "GET NEW"), requests.stream().distinct().toList());
    assertEquals(1, requests.stream().filter("GET NEW"::equals).count());
  }
}
