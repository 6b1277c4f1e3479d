package io.cairn.spark;

import io.cairn.spark.metadata.LocalCheckpointFiles;
import io.cairn.spark.metadata.RepartitionCheck;
import io.cairn.spark.metadata.S3CheckpointFiles;
import java.io.IOException;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * The files that Spark itself keeps in a checkpoint: offsets, commits, schemas, metadata.
 *
 * <p>Set by {@code spark.sql.streaming.checkpointFileManagerClass}. On S3 each file is one
 * conditional PUT; see {@link S3CheckpointFiles}. In a local folder each file is a link that fails
 * if the name exists; see {@link LocalCheckpointFiles}. Elsewhere, and if the S3 client cannot do a
 * conditional PUT, all calls go to the manager that Spark chooses itself.
 */
public final class CairnCheckpointFileManager implements CheckpointFileManager {
  private static final String SETTING = "spark.sql.streaming.checkpointFileManagerClass";

  private static final String PROVIDER = CairnStateStoreProvider.class.getName();

  private final CheckpointFileManager files;

  /**
   * Called by Spark.
   *
   * @param path the folder that the manager is for
   * @throws IOException the file system of the path cannot be used
   */
  public CairnCheckpointFileManager(Path path, Configuration hadoop) throws IOException {
    Optional<? extends CheckpointFileManager> own = S3CheckpointFiles.of(path, hadoop);
    if (own.isEmpty()) {
      own = LocalCheckpointFiles.of(path, hadoop);
    }
    this.files = own.isPresent() ? own.get() : ofSpark(path, hadoop);
  }

  private static CheckpointFileManager ofSpark(Path path, Configuration hadoop) {
    Configuration withoutThisClass = new Configuration(hadoop);
    withoutThisClass.unset(SETTING);
    return CheckpointFileManager.create(path, withoutThisClass);
  }

  @Override
  public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
    RepartitionCheck.refuse(path, files, PROVIDER);
    return files.createAtomic(path, overwriteIfPossible);
  }

  @Override
  public FSDataInputStream open(Path path) {
    return files.open(path);
  }

  @Override
  public FileStatus[] list(Path path, PathFilter filter) {
    return files.list(path, filter);
  }

  @Override
  public void mkdirs(Path path) {
    files.mkdirs(path);
  }

  @Override
  public boolean exists(Path path) {
    return files.exists(path);
  }

  @Override
  public void delete(Path path) {
    files.delete(path);
  }

  @Override
  public boolean isLocal() {
    return files.isLocal();
  }

  @Override
  public Path createCheckpointDirectory() {
    return files.createCheckpointDirectory();
  }

  @Override
  public void close() {
    files.close();
  }
}
