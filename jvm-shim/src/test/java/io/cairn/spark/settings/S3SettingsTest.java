package io.cairn.spark.settings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.errors.CairnException;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.Test;

/**
 * The job's {@code fs.s3a} settings reach the engine unchanged, so that a job that reads S3 can
 * keep its state there.
 */
class S3SettingsTest {
  private final Configuration hadoop = new Configuration(false);

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

  @Test
  void encryptionOfTheSupportedKinds() {
    hadoop.set("fs.s3a.encryption.algorithm", "SSE-KMS");
    hadoop.set("fs.s3a.encryption.key", "arn:key");
    assertEquals(Map.of("sse", "aws:kms", "sse_kms_key", "arn:key"), settings());

    hadoop.set("fs.s3a.encryption.algorithm", "SSE-C");
    String message = assertThrows(CairnException.class, this::settings).getMessage();
    assertTrue(message.contains("SSE-C"), message);
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
