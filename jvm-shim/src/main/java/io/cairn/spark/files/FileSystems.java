package io.cairn.spark.files;

import io.cairn.spark.errors.CairnException;
import java.io.IOException;
import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * The file systems of this JVM by number, one for each scheme, authority and user. They are few,
 * and stay until the JVM ends. Thread-safe.
 */
public final class FileSystems {
  private record Name(String scheme, String authority, UserGroupInformation user) {}

  private static final Map<Name, Integer> NUMBERS = new HashMap<>();
  private static final Map<Integer, HadoopFiles> FILES = new HashMap<>();

  private FileSystems() {}

  /**
   * Returns the number of the file system of a path, for the current user. Does not connect to it.
   *
   * @throws CairnException Hadoop has no such file system, or cannot load it ({@code CAIRN_SCHEME})
   */
  public static int register(Path root, Configuration conf) {
    try {
      FileSystem.getFileSystemClass(root.toUri().getScheme(), conf);
      return register(root, UserGroupInformation.getCurrentUser(), conf);
    } catch (IOException | RuntimeException | LinkageError e) {
      // A RuntimeException: Hadoop knows the class of the file system, but no jar has it.
      // A LinkageError: a jar has it, but not what it needs.
      throw FileErrors.translate(e, root.toString());
    }
  }

  private static synchronized int register(
      Path root, UserGroupInformation user, Configuration conf) {
    URI uri = root.toUri();
    Name name = new Name(uri.getScheme(), uri.getAuthority(), user);
    int number = NUMBERS.computeIfAbsent(name, added -> NUMBERS.size() + 1);
    HadoopFiles known = FILES.get(number);
    if (known == null) {
      FILES.put(number, new HadoopFiles(root, user, conf));
    } else {
      known.use(conf);
    }
    return number;
  }

  static synchronized HadoopFiles of(long number) {
    HadoopFiles files = number < 0 || number > Integer.MAX_VALUE ? null : FILES.get((int) number);
    if (files == null) {
      throw CairnException.protocol(
          "the engine named file system " + number + ", which is unknown");
    }
    return files;
  }
}
