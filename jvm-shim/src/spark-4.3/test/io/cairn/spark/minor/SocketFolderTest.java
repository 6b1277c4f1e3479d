package io.cairn.spark.minor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Executors are killed, and a machine that runs for months must not fill with their folders. */
class SocketFolderTest {
  @TempDir Path parent;

  /** A JVM that makes a folder, says which, and waits for the end of its input. */
  static final class Other {
    public static void main(String[] arguments) throws IOException {
      System.out.println(SocketFolder.newSocket(Path.of(arguments[0])));
      while (System.in.read() >= 0) {
        continue;
      }
    }
  }

  private Process start() throws IOException {
    return new ProcessBuilder(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "-cp",
            System.getProperty("java.class.path"),
            Other.class.getName(),
            parent.toString())
        .redirectError(ProcessBuilder.Redirect.INHERIT)
        .start();
  }

  private static Path folderOf(Process process) throws IOException {
    BufferedReader output = new BufferedReader(new InputStreamReader(process.getInputStream()));
    Path socket = Path.of(output.readLine());
    Files.createFile(socket);
    return socket.getParent();
  }

  @Test
  void theFolderOfAKilledProcessIsRemovedByTheNextOne() throws Exception {
    Process killed = start();
    Process alive = start();
    try {
      Path left = folderOf(killed);
      Path kept = folderOf(alive);
      killed.destroyForcibly().waitFor();
      assertTrue(Files.exists(left), "a kill gives it no time to remove it");

      SocketFolder own = SocketFolder.create(parent);

      assertFalse(Files.exists(left));
      assertTrue(Files.exists(kept.resolve("s1")), "another process has its socket there");
      assertTrue(own.exists());
    } finally {
      killed.destroyForcibly();
      alive.destroyForcibly();
    }
  }

  @Test
  void aProcessThatEndsRemovesItsFolder() throws Exception {
    Process process = start();
    try {
      Path folder = folderOf(process);

      process.getOutputStream().close();
      assertEquals(0, process.waitFor());

      assertFalse(Files.exists(folder));
    } finally {
      process.destroyForcibly();
    }
  }

  /** Programs that clean temporary folders remove what is old. */
  @Test
  void aFolderThatWasRemovedIsMadeAnew() throws IOException {
    Path first = SocketFolder.newSocket(parent);
    Files.delete(first.getParent().resolve("lock"));
    Files.delete(first.getParent());

    Path next = SocketFolder.newSocket(parent);

    assertTrue(Files.exists(next.getParent()));
  }
}
