package io.cairn.spark.settings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.errors.CairnException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.security.alias.CredentialProvider;
import org.apache.hadoop.security.alias.CredentialProviderFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The job's {@code fs.s3a} settings reach the engine unchanged, so that a job that reads S3 can
 * keep its state there.
 */
class S3SettingsTest {
  private static final String S3A_AUTH = "org.apache.hadoop.fs.s3a.auth.";

  private final Configuration hadoop = new Configuration(false);

  @TempDir private Path folder;

  private Map<String, String> settings() {
    return S3Settings.of(hadoop, "lake", Map.of());
  }

  @Test
  void keysEndpointRegionAndPathStyleReachTheEngine() {
    hadoop.set("fs.s3a.access.key", "AK");
    hadoop.set("fs.s3a.secret.key", "SK");
    hadoop.set("fs.s3a.endpoint", "http://127.0.0.1:9000");
    hadoop.set("fs.s3a.endpoint.region", "eu-west-1");
    hadoop.set("fs.s3a.path.style.access", "true");

    assertEquals(
        Map.of(
            "access_key",
            "AK",
            "secret_key",
            "SK",
            "endpoint_url",
            "http://127.0.0.1:9000",
            "region",
            "eu-west-1",
            "path_style",
            "true"),
        settings());
  }

  /** Jobs that use two S3 services set one of them per bucket. */
  @Test
  void theBucketsOwnSettingsHavePrecedence() {
    hadoop.set("fs.s3a.endpoint", "http://one:9000");
    hadoop.set("fs.s3a.bucket.lake.endpoint", "two:9000");
    hadoop.set("fs.s3a.connection.ssl.enabled", "false");

    assertEquals("http://two:9000", settings().get("endpoint_url"));
  }

  @Test
  void aSessionTokenIsSentWithItsKeys() {
    hadoop.set(
        "fs.s3a.aws.credentials.provider",
        "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider");
    hadoop.set("fs.s3a.access.key", "AK");
    hadoop.set("fs.s3a.secret.key", "SK");
    hadoop.set("fs.s3a.session.token", "ST");

    assertEquals("ST", settings().get("session_token"));
  }

  /**
   * A job whose keys are in such a file alone would be refused by the server, or use other keys.
   */
  @Test
  void credentialFilesOfS3aComeBeforeThoseOfHadoop() throws Exception {
    hadoop.set("hadoop.security.credential.provider.path", file("hadoop", "H", "ST"));
    assertEquals(keys("H", "ST"), settings());

    hadoop.set("fs.s3a.security.credential.provider.path", file("s3a", "A", null));
    String before = hadoop.get("hadoop.security.credential.provider.path");
    assertEquals(keys("A", "ST"), settings());
    assertEquals(before, hadoop.get("hadoop.security.credential.provider.path"), "of the job");

    hadoop.set("fs.s3a.bucket.sea.security.credential.provider.path", file("sea", "B", null));
    assertEquals(keys("A", "ST"), settings());
    hadoop.set("fs.s3a.bucket.lake.security.credential.provider.path", file("lake", "L", null));
    assertEquals(keys("L", "ST"), settings());
  }

  private static Map<String, String> keys(String key, String token) {
    return Map.of("access_key", key, "secret_key", key, "session_token", token);
  }

  /** Writes a credential file and returns its URL. */
  private String file(String name, String key, String token) throws Exception {
    String url = "localjceks://file" + folder.resolve(name + ".jceks");
    Configuration conf = new Configuration(false);
    conf.set("hadoop.security.credential.provider.path", url);
    CredentialProvider file = CredentialProviderFactory.getProviders(conf).get(0);
    file.createCredentialEntry("fs.s3a.access.key", key.toCharArray());
    file.createCredentialEntry("fs.s3a.secret.key", key.toCharArray());
    if (token != null) {
      file.createCredentialEntry("fs.s3a.session.token", token.toCharArray());
    }
    file.flush();
    return url;
  }

  @Test
  void anonymousAndTheStandardChainSendNoKeys() {
    hadoop.set("fs.s3a.access.key", "AK");
    hadoop.set("fs.s3a.secret.key", "SK");

    hadoop.set(
        "fs.s3a.aws.credentials.provider",
        "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider");
    assertEquals(Map.of("anonymous", "true"), settings());

    hadoop.set(
        "fs.s3a.aws.credentials.provider",
        "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider");
    assertEquals(Map.of(), settings());
  }

  /** A guess could read the bucket of another account, or fail an hour later. */
  @Test
  void anUnknownCredentialProviderIsRefusedWithTheSettingToUse() {
    hadoop.set("fs.s3a.aws.credentials.provider", "com.example.Vault");

    CairnException error = assertThrows(CairnException.class, this::settings);

    assertTrue(error.getMessage().contains("com.example.Vault"), error.getMessage());
    assertTrue(error.getMessage().contains("cairn.s3.credentials"), error.getMessage());
  }

  /** Hadoop would use the keys where the environment has none, and Cairn another account. */
  @Test
  void theStandardChainBeforeKeysIsRefusedWithTheSettingToUse() {
    String simple = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider";
    String chain = "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider";
    hadoop.set("fs.s3a.aws.credentials.provider", chain + ",\n  " + simple);
    assertEquals(Map.of(), settings(), "no keys are set, so Hadoop would use the chain too");
    hadoop.set("fs.s3a.access.key", "AK");
    hadoop.set("fs.s3a.secret.key", "SK");

    CairnException error = assertThrows(CairnException.class, this::settings);

    assertTrue(error.getMessage().contains("cairn.s3.credentials"), error.getMessage());
    hadoop.set("fs.s3a.aws.credentials.provider", " " + simple + "," + chain);
    assertEquals("AK", settings().get("access_key"));
  }

  @Test
  void cairnsOwnSettingsHavePrecedenceOverAll() {
    hadoop.set("fs.s3a.aws.credentials.provider", "com.example.Vault");
    hadoop.set("fs.s3a.endpoint", "http://one:9000");

    Map<String, String> settings =
        S3Settings.of(
            hadoop,
            "lake",
            Map.of(
                "s3.credentials", "aws", "s3.endpoint", "http://own:9000", "s3.pathStyle", true));

    assertEquals(Map.of("endpoint_url", "http://own:9000", "path_style", "true"), settings);
  }

  /** Hadoop's default is false, with which a MinIO of Cairn's own setting would not be found. */
  @Test
  void thePathStyleOfS3aIsForItsOwnEndpoint() {
    hadoop.set("fs.s3a.endpoint", "http://one.example.com");
    hadoop.set("fs.s3a.path.style.access", "false");
    assertEquals("false", settings().get("path_style"));

    assertEquals(
        Map.of("endpoint_url", "http://own:9000"),
        S3Settings.of(hadoop, "lake", Map.of("s3.endpoint", "http://own:9000")));
    assertEquals(
        Map.of("endpoint_url", "http://own:9000", "path_style", "false"),
        S3Settings.of(
            hadoop, "lake", Map.of("s3.endpoint", "http://own:9000", "s3.pathStyle", false)));
  }

  @Test
  void encryptionOfTheSupportedKinds() {
    hadoop.set("fs.s3a.encryption.algorithm", "SSE-KMS");
    hadoop.set("fs.s3a.encryption.key", "arn:key");
    assertEquals(Map.of("sse", "aws:kms", "sse_kms_key", "arn:key"), settings());

    hadoop.set("fs.s3a.encryption.algorithm", "DSSE-KMS");
    assertEquals(Map.of("sse", "aws:kms:dsse", "sse_kms_key", "arn:key"), settings());

    hadoop.set("fs.s3a.encryption.algorithm", "SSE-C");
    assertEquals(Map.of("sse_customer_key", "arn:key"), settings());

    hadoop.set("fs.s3a.encryption.algorithm", "CSE-KMS");
    String message = assertThrows(CairnException.class, this::settings).getMessage();
    assertTrue(message.contains("CSE-KMS"), message);
  }

  /** A key whose policy requires the context would refuse the first commit, not the start. */
  @ParameterizedTest
  @ValueSource(strings = {"fs.s3a.encryption.context", "fs.s3a.bucket.lake.encryption.context"})
  void anEncryptionContextThatPutsWouldLackIsRefused(String name) {
    hadoop.set(name, "project=lake");

    for (String algorithm : List.of("SSE-KMS", "DSSE-KMS")) {
      hadoop.set("fs.s3a.encryption.algorithm", algorithm);
      String message = assertThrows(CairnException.class, this::settings).getMessage();
      assertTrue(message.contains("fs.s3a.encryption.context"), message);
      assertTrue(message.contains("fs.s3a.bucket.lake.encryption.algorithm"), message);
    }

    // As its error says; Hadoop does not use a context there either.
    hadoop.set("fs.s3a.bucket.lake.encryption.algorithm", "SSE-S3");
    assertEquals(Map.of("sse", "AES256"), settings());
  }

  /** Without its key every PUT would be stored without encryption, or refused. */
  @Test
  void encryptionWithACustomersKeyNeedsTheKey() {
    hadoop.set("fs.s3a.encryption.algorithm", "SSE-C");

    CairnException error = assertThrows(CairnException.class, this::settings);

    assertTrue(error.getMessage().contains("fs.s3a.encryption.key"), error.getMessage());
  }

  @Test
  void theProxyReachesTheEngineWithItsPassword() {
    hadoop.set("fs.s3a.proxy.host", "proxy");
    // In S3A the scheme of the proxy alone counts, although core-default.xml says otherwise.
    hadoop.set("fs.s3a.connection.ssl.enabled", "true");
    assertEquals(Map.of("proxy_url", "http://proxy:80"), settings());
    hadoop.set("fs.s3a.proxy.ssl.enabled", "true");
    assertEquals(Map.of("proxy_url", "https://proxy:443"), settings());

    hadoop.set("fs.s3a.proxy.port", "3128");
    hadoop.set("fs.s3a.proxy.username", "me");
    hadoop.set("fs.s3a.proxy.password", "p@ss word/");
    assertEquals(Map.of("proxy_url", "https://me:p%40ss%20word%2F@proxy:3128"), settings());
  }

  /**
   * State on another endpoint than Spark's own files would break a rule that the user must keep.
   */
  @Test
  void aFipsEndpointIsUsedWhereSparkUsesIt() {
    hadoop.set("fs.s3a.endpoint.fips", "true");
    assertEquals(Map.of("use_fips", "true"), settings());

    hadoop.set("fs.s3a.bucket.lake.endpoint.fips", "false");
    assertEquals(Map.of(), settings());
  }

  @Test
  void anAccessPointIsThatOfTheBucket() {
    hadoop.set("fs.s3a.bucket.lake.accesspoint.arn", "arn:aws:s3:eu-west-1:1:accesspoint/lake");
    hadoop.set("fs.s3a.bucket.sea.accesspoint.arn", "arn:aws:s3:eu-west-1:1:accesspoint/sea");

    assertEquals(Map.of("access_point", "arn:aws:s3:eu-west-1:1:accesspoint/lake"), settings());
  }

  /** Hadoop assumes the role with the keys of the settings unless it is told otherwise. */
  @Test
  void aRoleIsAssumedWithTheKeysOfTheSettings() {
    hadoop.set("fs.s3a.aws.credentials.provider", S3A_AUTH + "AssumedRoleCredentialProvider");
    hadoop.set("fs.s3a.access.key", "AK");
    hadoop.set("fs.s3a.secret.key", "SK");
    String missing = assertThrows(CairnException.class, this::settings).getMessage();

    hadoop.set("fs.s3a.assumed.role.arn", "arn:aws:iam::1:role/job");
    hadoop.set("fs.s3a.assumed.role.session.duration", "20m");
    hadoop.set("fs.s3a.assumed.role.session.name", "etl");
    hadoop.set("fs.s3a.assumed.role.sts.endpoint", "sts.eu-west-1.amazonaws.com");
    hadoop.set("fs.s3a.assumed.role.sts.endpoint.region", "eu-west-1");

    assertTrue(missing.contains("fs.s3a.assumed.role.arn"), missing);
    assertEquals(
        Map.of(
            "access_key", "AK",
            "secret_key", "SK",
            "role_arn", "arn:aws:iam::1:role/job",
            "role_duration_s", "1200",
            "role_session_name", "etl",
            "sts_endpoint_url", "https://sts.eu-west-1.amazonaws.com",
            "sts_region", "eu-west-1"),
        settings());
  }

  /** A role that grants less time than the setting for all buckets refuses every request. */
  @Test
  void theDurationOfARoleMayBeThatOfTheBucket() {
    hadoop.set("fs.s3a.aws.credentials.provider", S3A_AUTH + "AssumedRoleCredentialProvider");
    hadoop.set("fs.s3a.assumed.role.arn", "arn:aws:iam::1:role/job");
    assertEquals("1800", settings().get("role_duration_s"));

    hadoop.set("fs.s3a.assumed.role.session.duration", "2h");
    hadoop.set("fs.s3a.bucket.lake.assumed.role.session.duration", "15m");

    assertEquals("900", settings().get("role_duration_s"));
  }

  @Test
  void aRoleThatIsAssumedByARoleIsRefused() {
    String provider = S3A_AUTH + "AssumedRoleCredentialProvider";
    hadoop.set("fs.s3a.aws.credentials.provider", provider);
    hadoop.set("fs.s3a.assumed.role.arn", "arn:aws:iam::1:role/job");
    hadoop.set("fs.s3a.assumed.role.credentials.provider", provider);

    CairnException error = assertThrows(CairnException.class, this::settings);

    assertTrue(error.getMessage().contains("assumed.role.credentials.provider"));
  }

  @Test
  void limitsAndCertificatesAreCairnsOwnSettings() {
    Map<String, Object> own =
        Map.of(
            "s3.connectTimeoutMs", 8L,
            "s3.readTimeoutMs", 9L,
            "s3.caBundle", "/etc/ca.pem");

    assertEquals(
        Map.of(
            "connect_timeout_ms", "8",
            "read_timeout_ms", "9",
            "ca_bundle", "/etc/ca.pem"),
        S3Settings.of(hadoop, "lake", own));
  }

  /** A secret in an error would end up in logs and tickets. */
  @Test
  void noErrorContainsASecret() {
    hadoop.set("fs.s3a.access.key", "AKIASECRET");
    hadoop.set(
        "fs.s3a.aws.credentials.provider", "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider");

    CairnException error = assertThrows(CairnException.class, this::settings);

    assertFalse(error.getMessage().contains("AKIASECRET"), error.getMessage());
  }
}
