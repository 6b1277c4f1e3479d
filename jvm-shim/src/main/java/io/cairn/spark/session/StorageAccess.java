package io.cairn.spark.session;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.engine.StorageConnections;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.files.FileSystems;
import io.cairn.spark.protocol.Json;
import io.cairn.spark.settings.S3Settings;
import io.cairn.spark.settings.StorageLocation;
import io.cairn.spark.settings.StoreSettings;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;

/** Where the objects of a store are, and what its engine needs to reach them. Thread-safe. */
public final class StorageAccess {
  private final String store;
  private final StoreSettings conf;

  /** Spark's, shared by all stores: a copy is large. Spark may change its run id. */
  private final Configuration hadoop;

  private final StorageLocation location;

  /** Its number, if the engine reaches the location through this JVM; else 0. */
  private final int fileSystem;

  /**
   * @param store its name, for errors
   * @param root the store's root, as Spark names it
   */
  StorageAccess(
      String store, org.apache.hadoop.fs.Path root, StoreSettings conf, Configuration hadoop) {
    this.store = store;
    this.conf = conf;
    this.hadoop = hadoop;
    location = StorageLocation.of(root, hadoop);
    fileSystem = location.isOfHadoop() ? FileSystems.register(location.hadoopPath(), hadoop) : 0;
  }

  /** Creates the store's folder on a file system: the state data source lists these folders. */
  public void makeFolder() {
    if (location.isFile()) {
      try {
        Files.createDirectories(Path.of(location.url()));
      } catch (IOException e) {
        throw CairnException.of(
            ErrorKind.INVALID,
            "CAIRN_ACCESS_DENIED",
            "cannot create the folder of store " + store + ": " + e.getMessage(),
            "check the permissions there",
            e);
      }
    }
  }

  /** The URL that the engine opens. */
  String url() {
    return location.url();
  }

  /** The settings of the storage. Reads secrets, which may take long: not in {@code init}. */
  ObjectNode settings() {
    ObjectNode settings = Json.object();
    if (location.isS3()) {
      S3Settings.of(hadoop, location.bucket(), conf.values).forEach(settings::put);
    } else if (location.isOfHadoop()) {
      settings.put(StorageConnections.FILE_SYSTEM, String.valueOf(fileSystem));
      settings.put("timeout_ms", String.valueOf(conf.worker.timeouts().requestMs()));
    }
    return settings;
  }

  /** The same for an engine that has them: null unless they have credentials, which may change. */
  ObjectNode renewedSettings() {
    return location.isS3() ? settings() : null;
  }
}
