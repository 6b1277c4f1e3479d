package io.cairn.spark.minor;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The folder of this JVM's sockets, which only its user may enter: locked while the JVM runs, and
 * removed at its end.
 *
 * <p>A JVM that was killed leaves it. The next one with the same parent removes it: a free lock
 * means a dead process, however it ended.
 *
 * <pre>
 *   parent/cairn-tws-pid-random/   lock   one socket per task that runs
 * </pre>
 *
 * <p>A process does not open the locks of folders with its own id: when it closes one, the system
 * releases those that it has. Processes of other namespaces with this id remove theirs.
 */
final class SocketFolder {
  private static final Logger LOG = LoggerFactory.getLogger(SocketFolder.class);
  private static final String PREFIX = "cairn-tws-";
  private static final String OWN = PREFIX + ProcessHandle.current().pid() + "-";
  private static final String LOCK = "lock";

  private static SocketFolder current;
  private static int count;

  private final Path folder;
  private final FileLock lock;

  private SocketFolder(Path folder, FileLock lock) {
    this.folder = folder;
    this.lock = lock;
  }

  /**
   * Returns the path of a new socket.
   *
   * @param parent of the folder: the same one in all calls
   */
  static synchronized Path newSocket(Path parent) throws IOException {
    // Programs that clean temporary folders may have removed it, in a JVM that runs for months.
    if (current == null || !current.exists()) {
      boolean isFirst = current == null;
      current = create(parent);
      if (isFirst) {
        Runtime.getRuntime().addShutdownHook(new Thread(SocketFolder::removeCurrent));
      }
    }
    return current.folder.resolve("s" + ++count);
  }

  private static synchronized void removeCurrent() {
    try {
      remove(current.folder);
    } catch (IOException error) {
      LOG.debug("{} is left to the next process", current.folder, error);
    }
  }

  /** Returns a new folder, and removes those of dead processes. */
  static SocketFolder create(Path parent) throws IOException {
    try (DirectoryStream<Path> found = Files.newDirectoryStream(parent, PREFIX + "*")) {
      for (Path folder : found) {
        if (!folder.getFileName().toString().startsWith(OWN)) {
          removeIfDead(folder);
        }
      }
    }
    SocketFolder made = null;
    while (made == null) {
      made = createIfLeft(parent);
    }
    return made;
  }

  /** Returns a new folder; null if another process has just taken it for a dead one. */
  private static SocketFolder createIfLeft(Path parent) throws IOException {
    Path folder = Files.createTempDirectory(parent, OWN);
    try {
      FileChannel channel = openLock(folder);
      FileLock lock = channel.tryLock();
      SocketFolder made = new SocketFolder(folder, lock);
      if (lock != null && made.exists()) {
        return made;
      }
      channel.close();
    } catch (NoSuchFileException removed) {
      LOG.debug("{} was removed at once", folder, removed);
    }
    return null;
  }

  private static FileChannel openLock(Path folder) throws IOException {
    return FileChannel.open(
        folder.resolve(LOCK),
        StandardOpenOption.CREATE,
        StandardOpenOption.WRITE,
        LinkOption.NOFOLLOW_LINKS);
  }

  private static void removeIfDead(Path folder) {
    try (FileChannel channel = openLock(folder);
        FileLock lock = channel.tryLock()) {
      if (lock != null) {
        remove(folder);
      }
    } catch (IOException error) {
      LOG.debug("{} is another user's", folder, error);
    }
  }

  private static void remove(Path folder) throws IOException {
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder)) {
      for (Path file : files) {
        Files.deleteIfExists(file);
      }
    }
    Files.deleteIfExists(folder);
  }

  /** Whether it is there, and its lock is held. */
  boolean exists() {
    return lock.isValid() && Files.exists(folder.resolve(LOCK));
  }
}
