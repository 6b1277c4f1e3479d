package io.cairn.suites;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.ChecksumCheckpointFileManagerSuite;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import scala.Function1;
import scala.runtime.BoxedUnit;

/** Spark's tests of files with checksums, over the manager that the JVM's properties name. */
public final class ChecksumCheckpointFilesSuite extends ChecksumCheckpointFileManagerSuite {
  private static final long serialVersionUID = 1L;

  @Override
  public void withTempHadoopPath(Function1<Path, BoxedUnit> test) {
    TestFiles.inTemporaryFolder(test);
  }

  @Override
  public void checkLeakingCrcFiles(Path folder) {
    TestFiles.checkNoChecksumsLeft(folder);
  }

  @Override
  public CheckpointFileManager createNoChecksumManager(Path folder) {
    return TestFiles.manager(folder);
  }
}
