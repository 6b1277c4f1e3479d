package io.cairn.spark.engine;

import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URL;
import java.net.URLClassLoader;
import org.junit.jupiter.api.Test;

class DaemonThreadsTest {
  /** A job's class loader holds all its classes; the threads may live as long as the executor. */
  @Test
  void aThreadDoesNotKeepTheClassLoaderOfItsTask() throws Exception {
    Thread task = Thread.currentThread();
    ClassLoader before = task.getContextClassLoader();
    try (URLClassLoader ofJob = new URLClassLoader(new URL[0], before)) {
      task.setContextClassLoader(ofJob);

      Thread thread = DaemonThreads.of("cairn-test", () -> {});

      assertSame(DaemonThreads.class.getClassLoader(), thread.getContextClassLoader());
      assertTrue(thread.isDaemon());
    } finally {
      task.setContextClassLoader(before);
    }
  }
}
