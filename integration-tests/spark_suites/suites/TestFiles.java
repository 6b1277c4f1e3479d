package io.cairn.suites;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import scala.Function1;
import scala.runtime.BoxedUnit;

/** Folders of the default file system, and the checkpoint file manager, by the JVM's properties. */
final class TestFiles {
  private static final String HADOOP = "spark.hadoop.";
  private static final String MANAGER = "spark.sql.streaming.checkpointFileManagerClass";

  private TestFiles() {}

  /** Runs a test in a new folder of {@code fs.defaultFS}; without it, of the local disk. */
  static void inTemporaryFolder(Function1<Path, BoxedUnit> test) {
    String parent = System.getProperty("java.io.tmpdir");
    try {
      FileSystem files = FileSystem.get(configuration());
      Path folder = files.makeQualified(new Path(parent, "suite-" + UUID.randomUUID()));
      files.mkdirs(folder);
      try {
        test.apply(folder);
      } finally {
        files.delete(folder, true);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Fails if a manager has left Hadoop's checksum file of a file that does not exist. */
  static void checkNoChecksumsLeft(Path folder) {
    try {
      FileSystem files = folder.getFileSystem(configuration());
      for (FileStatus status : files.listStatus(folder)) {
        String name = status.getPath().getName();
        if (name.startsWith(".")
            && name.endsWith(".crc")
            && !files.exists(new Path(folder, name.substring(1, name.length() - 4)))) {
          throw new AssertionError("a checksum file is left: " + status.getPath());
        }
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  static CheckpointFileManager manager(Path folder) {
    return CheckpointFileManager.create(folder, configuration());
  }

  private static Configuration configuration() {
    Configuration configuration = new Configuration();
    for (Map.Entry<Object, Object> property : System.getProperties().entrySet()) {
      String name = property.getKey().toString();
      if (name.startsWith(HADOOP)) {
        configuration.set(name.substring(HADOOP.length()), property.getValue().toString());
      } else if (name.equals(MANAGER)) {
        configuration.set(MANAGER, property.getValue().toString());
      }
    }
    return configuration;
  }
}
