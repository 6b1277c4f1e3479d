package io.cairn.spark.settings;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import java.io.IOException;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.security.alias.CredentialProviderFactory;

/**
 * The job's {@code fs.s3a.*} settings as the engine's S3 settings, with the overrides {@code
 * fs.s3a.bucket.<bucket>.*}.
 *
 * <p>Cairn's own {@code cairn.s3.*} have precedence. Secrets are read by {@code
 * Configuration.getPassword}, so credential files work. They are sent to the worker over Py4J only
 * and never appear in a log or an error. Names of the result: {@code S3Settings} in Python.
 */
public final class S3Settings {
  private static final String S3A = "fs.s3a.";
  private static final String PROVIDERS = "aws.credentials.provider";
  private static final String ROLE = "assumed.role.";
  private static final String CONTEXT = "encryption.context";
  private static final String CREDENTIAL_FILES = "security.credential.provider.path";

  /** Hadoop's default. */
  private static final long ROLE_DURATION_S = 1800;

  private static final String SETTING = "spark.sql.streaming.stateStore.cairn.s3.credentials";

  /** Cairn's own settings that have one counterpart in the engine. */
  private static final Map<String, String> LIMITS =
      Map.of(
          "s3.connectTimeoutMs", "connect_timeout_ms",
          "s3.readTimeoutMs", "read_timeout_ms",
          "s3.caBundle", "ca_bundle");

  private static final List<String> SIMPLE =
      List.of(
          "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
          "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider");
  private static final String ASSUMED_ROLE =
      "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider";
  private static final List<String> ANONYMOUS =
      List.of(
          "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider",
          "software.amazon.awssdk.auth.credentials.AnonymousCredentialsProvider",
          "com.amazonaws.auth.AnonymousAWSCredentials");

  /** Parts of the standard chain, which the engine's client tries as a whole. */
  private static final List<String> AWS_CHAIN =
      List.of(
          "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
          "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
          "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
          "software.amazon.awssdk.auth.credentials.InstanceProfileCredentialsProvider",
          "software.amazon.awssdk.auth.credentials.ContainerCredentialsProvider",
          "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider",
          "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
          "software.amazon.awssdk.services.sts.auth.StsWebIdentityTokenFileCredentialsProvider",
          "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
          "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
          "com.amazonaws.auth.InstanceProfileCredentialsProvider",
          "com.amazonaws.auth.WebIdentityTokenCredentialsProvider",
          "com.amazonaws.auth.profile.ProfileCredentialsProvider");

  private final Configuration hadoop;
  private final String bucket;

  private S3Settings(Configuration hadoop, String bucket) {
    this.bucket = bucket;
    this.hadoop = withCredentialFilesOfS3a(hadoop);
  }

  /**
   * S3A reads its own credential files before Hadoop's: {@code patchSecurityCredentialProviders}.
   */
  private Configuration withCredentialFilesOfS3a(Configuration ofJob) {
    List<String> files =
        new ArrayList<>(ofJob.getStringCollection(nameInUse(ofJob, CREDENTIAL_FILES)));
    if (files.isEmpty()) {
      return ofJob;
    }
    files.addAll(ofJob.getStringCollection(CredentialProviderFactory.CREDENTIAL_PROVIDER_PATH));
    Configuration own = new Configuration(ofJob);
    own.set(CredentialProviderFactory.CREDENTIAL_PROVIDER_PATH, String.join(",", files));
    return own;
  }

  /**
   * Returns the settings with which the engine reaches the bucket.
   *
   * @param own values of {@code cairn.s3.*} by their short names
   */
  public static Map<String, String> of(
      Configuration hadoop, String bucket, Map<String, Object> own) {
    return new S3Settings(hadoop, bucket).read(own);
  }

  private Map<String, String> read(Map<String, Object> own) {
    Map<String, String> settings = new TreeMap<>();
    put(settings, "endpoint_url", endpoint((String) own.get("s3.endpoint")));
    put(
        settings,
        "region",
        own.get("s3.region") != null ? (String) own.get("s3.region") : plain("endpoint.region"));
    put(settings, "path_style", pathStyle(own));
    if (Boolean.parseBoolean(plain("endpoint.fips"))) {
      settings.put("use_fips", "true");
    }
    for (Map.Entry<String, String> limit : LIMITS.entrySet()) {
      Object value = own.get(limit.getKey());
      put(settings, limit.getValue(), value == null ? null : value.toString());
    }
    put(
        settings,
        "access_point",
        trimmed(hadoop.get(S3A + "bucket." + bucket + ".accesspoint.arn")));
    put(settings, "proxy_url", proxy());
    encryption(settings);
    String credentials = (String) own.get("s3.credentials");
    if (credentials == null) {
      credentials = credentialsByClass(plain(PROVIDERS), PROVIDERS);
    }
    if (credentials.equals("role")) {
      assumedRole(settings);
      credentials =
          credentialsByClass(plain(ROLE + "credentials.provider"), ROLE + "credentials.provider");
    }
    if (credentials.equals("anonymous")) {
      settings.put("anonymous", "true");
    } else if (credentials.equals("hadoop")) {
      accessKeys(settings);
    }
    return settings;
  }

  /** The proxy as a URL, with its password; null if there is none. */
  private String proxy() {
    String host = plain("proxy.host");
    if (host == null) {
      return null;
    }
    boolean isSecure = Boolean.parseBoolean(plain("proxy.ssl.enabled"));
    String port = plain("proxy.port");
    String user = secret("proxy.username");
    String password = secret("proxy.password");
    return (isSecure ? "https://" : "http://")
        + (user == null ? "" : encoded(user) + ":" + encoded(password) + "@")
        + host
        + ":"
        + (port != null ? port : isSecure ? "443" : "80");
  }

  private static String encoded(String text) {
    return text == null ? "" : URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
  }

  private void assumedRole(Map<String, String> settings) {
    String arn = plain(ROLE + "arn");
    if (arn == null) {
      throw CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_CONFIG",
          S3A + ROLE + "arn is not set, but " + ASSUMED_ROLE + " is a credential provider",
          "set it to the role's ARN");
    }
    settings.put("role_arn", arn);
    put(settings, "role_session_name", plain(ROLE + "session.name"));
    put(settings, "role_external_id", plain(ROLE + "external.id"));
    put(settings, "role_policy", plain(ROLE + "policy"));
    String duration = nameInUse(hadoop, ROLE + "session.duration");
    long seconds = hadoop.getTimeDuration(duration, ROLE_DURATION_S, TimeUnit.SECONDS);
    settings.put("role_duration_s", Long.toString(seconds));
    String sts = plain(ROLE + "sts.endpoint");
    put(settings, "sts_endpoint_url", sts == null || sts.contains("://") ? sts : "https://" + sts);
    put(settings, "sts_region", plain(ROLE + "sts.endpoint.region"));
  }

  private String endpoint(String ownEndpoint) {
    String endpoint = ownEndpoint != null ? ownEndpoint : plain("endpoint");
    if (endpoint == null || endpoint.equals("s3.amazonaws.com")) {
      // Hadoop's word for the region's own endpoint.
      return null;
    }
    if (endpoint.contains("://")) {
      return endpoint;
    }
    String secure = plain("connection.ssl.enabled");
    return (secure == null || Boolean.parseBoolean(secure) ? "https://" : "http://") + endpoint;
  }

  /** Null: the engine's default. S3A's value, which Hadoop sets to false, is for S3A's endpoint. */
  private String pathStyle(Map<String, Object> own) {
    Object pathStyle = own.get("s3.pathStyle");
    if (pathStyle != null) {
      return pathStyle.toString();
    }
    return own.get("s3.endpoint") != null ? null : plain("path.style.access");
  }

  private void encryption(Map<String, String> settings) {
    String algorithm = plain("encryption.algorithm");
    if (algorithm == null) {
      algorithm = plain("server-side-encryption-algorithm");
    }
    if (algorithm == null) {
      return;
    }
    switch (algorithm.toUpperCase(Locale.ROOT)) {
      case "AES256", "SSE-S3" -> settings.put("sse", "AES256");
      case "SSE-KMS" -> keyService(settings, "aws:kms");
      case "DSSE-KMS" -> keyService(settings, "aws:kms:dsse");
      case "SSE-C" -> {
        String key = encryptionKey();
        if (key == null) {
          throw CairnException.of(
              ErrorKind.INVALID,
              "CAIRN_CONFIG",
              "fs.s3a.encryption.algorithm is SSE-C, but there is no key",
              "set fs.s3a.encryption.key to base64 of 32 bytes");
        }
        settings.put("sse_customer_key", key);
      }
      default ->
          throw CairnException.of(
              ErrorKind.INVALID,
              "CAIRN_CONFIG",
              "fs.s3a.encryption.algorithm is '" + algorithm + "', which Cairn does not support",
              "use SSE-S3, SSE-KMS, DSSE-KMS or SSE-C, or the bucket's default encryption");
    }
  }

  private void keyService(Map<String, String> settings, String sse) {
    if (secret(CONTEXT) != null) {
      throw CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_CONFIG",
          S3A
              + CONTEXT
              + " is set for bucket "
              + bucket
              + ", and Cairn cannot send it: a key that requires it would refuse Cairn's objects,"
              + " and other keys would encrypt them without it",
          "unset it, or set "
              + S3A
              + "bucket."
              + bucket
              + ".encryption.algorithm to SSE-S3, which has no context, for a bucket of"
              + " checkpoints");
    }
    settings.put("sse", sse);
    put(settings, "sse_kms_key", encryptionKey());
  }

  private String encryptionKey() {
    String key = secret("encryption.key");
    return key != null ? key : secret("server-side-encryption.key");
  }

  /** Chooses one source of credentials by the provider classes that Hadoop would use. */
  private String credentialsByClass(String classes, String setting) {
    boolean hasKeys = secret("access.key") != null;
    if (classes == null) {
      return hasKeys ? "hadoop" : "aws";
    }
    boolean anonymous = false;
    List<String> providers = List.of(classes.trim().split("[,\\s]+"));
    for (int at = 0; at < providers.size(); at++) {
      String provider = providers.get(at);
      if (provider.isEmpty()) {
        continue;
      }
      if (SIMPLE.contains(provider)) {
        if (hasKeys) {
          return "hadoop";
        }
      } else if (provider.equals(ASSUMED_ROLE) && setting.equals(PROVIDERS)) {
        return "role";
      } else if (AWS_CHAIN.contains(provider)) {
        List<String> behind = providers.subList(at + 1, providers.size());
        if (hasKeys && behind.stream().anyMatch(SIMPLE::contains)) {
          throw chainBeforeKeys(provider, setting);
        }
        return "aws";
      } else if (ANONYMOUS.contains(provider)) {
        anonymous = true;
        break;
      } else {
        throw CairnException.of(
            ErrorKind.INVALID,
            "CAIRN_CONFIG",
            "Cairn does not know the credential provider " + provider + " of " + S3A + setting,
            "set "
                + SETTING
                + " to hadoop (keys of fs.s3a.access.key), aws (the standard chain) or anonymous");
      }
    }
    return anonymous ? "anonymous" : hasKeys ? "hadoop" : "aws";
  }

  /**
   * The error for a list in which Hadoop uses the keys if the chain has no credentials: Cairn does
   * not know whether each worker has some, and could write as somebody else than Hadoop.
   */
  private static CairnException chainBeforeKeys(String provider, String setting) {
    return CairnException.of(
        ErrorKind.INVALID,
        "CAIRN_CONFIG",
        S3A
            + setting
            + " names "
            + provider
            + " before the provider of the keys in fs.s3a.access.key, and Cairn uses only one",
        "set "
            + SETTING
            + " to aws (the standard chain, which has the first one) or to hadoop (the keys)");
  }

  private void accessKeys(Map<String, String> settings) {
    String accessKey = secret("access.key");
    String secretKey = secret("secret.key");
    if (accessKey == null || secretKey == null) {
      throw CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_CONFIG",
          "fs.s3a.access.key and fs.s3a.secret.key are not both set for bucket " + bucket,
          "set both, or set " + SETTING + " to aws");
    }
    settings.put("access_key", accessKey);
    settings.put("secret_key", secretKey);
    put(settings, "session_token", secret("session.token"));
  }

  private String plain(String name) {
    return trimmed(hadoop.get(nameInUse(hadoop, name)));
  }

  /** The bucket's own name of a setting if it has a value, else the name for all buckets. */
  private String nameInUse(Configuration conf, String name) {
    String ofBucket = S3A + "bucket." + bucket + "." + name;
    return trimmed(conf.get(ofBucket)) != null ? ofBucket : S3A + name;
  }

  private static String trimmed(String value) {
    return value == null || value.isBlank() ? null : value.trim();
  }

  private String secret(String name) {
    try {
      char[] value = hadoop.getPassword(S3A + "bucket." + bucket + "." + name);
      if (value == null || value.length == 0) {
        value = hadoop.getPassword(S3A + name);
      }
      return value == null || value.length == 0 ? null : new String(value).trim();
    } catch (IOException e) {
      throw CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_CONFIG",
          "the credential file for " + S3A + name + " cannot be read",
          "check "
              + CredentialProviderFactory.CREDENTIAL_PROVIDER_PATH
              + " and "
              + S3A
              + CREDENTIAL_FILES,
          e);
    }
  }

  private static void put(Map<String, String> settings, String name, String value) {
    if (value != null) {
      settings.put(name, value);
    }
  }
}
