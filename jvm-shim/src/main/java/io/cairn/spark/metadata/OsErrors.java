package io.cairn.spark.metadata;

import java.io.IOException;
import java.nio.file.FileSystemException;
import java.util.Set;

/**
 * What an error of the operating system means. Java gives the text of the C library, and not the
 * number: here are those of glibc and of musl. With a locale whose texts are other ones no error is
 * recognized: each is then thrown as it is.
 */
final class OsErrors {
  /** EPERM, EOPNOTSUPP, ENOSYS, EMLINK, EXDEV: as in the engine's storage/files.py. */
  private static final Set<String> NO_LINKS =
      Set.of(
          "Operation not permitted",
          "Operation not supported",
          "Not supported",
          "Function not implemented",
          "Too many links",
          "Invalid cross-device link",
          "Cross-device link");

  /** EINVAL, EBADF, EOPNOTSUPP, ENOSYS: as in the engine's storage/files.py. */
  private static final Set<String> NO_SYNC =
      Set.of(
          "Invalid argument",
          "Bad file descriptor",
          "Operation not supported",
          "Not supported",
          "Function not implemented");

  private OsErrors() {}

  /** Whether a link failed because the file system has none. */
  static boolean meansNoLinks(FileSystemException error) {
    return error.getReason() != null && NO_LINKS.contains(error.getReason());
  }

  /** Whether a sync failed because the file system cannot do it. */
  static boolean meansNoSync(IOException error) {
    return error.getMessage() != null && NO_SYNC.contains(error.getMessage());
  }
}
