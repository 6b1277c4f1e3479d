package io.cairn.suites;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.CheckpointFileManagerTests;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import scala.Function1;
import scala.runtime.BoxedUnit;

/** Spark's tests of a checkpoint file manager, for the one that the JVM's properties name. */
public final class CheckpointFilesSuite extends CheckpointFileManagerTests {
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
  public CheckpointFileManager createManager(Path folder) {
    return TestFiles.manager(folder);
  }
}
