package io.cairn.spark.files;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import io.cairn.spark.errors.OpenFiles;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.UnknownHostException;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.NoSuchFileException;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.ChecksumException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.PathIsNotDirectoryException;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.hadoop.ipc.RemoteException;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.security.token.SecretManager;

/** The errors of Hadoop's file systems as Cairn's, by their classes. */
final class FileErrors {
  private static final int MAX_TEXT = 300;

  /** Of jars that the shim is not compiled against: the simple names of their classes. */
  private static final Map<String, String> BY_NAME =
      Map.of(
          "DSQuotaExceededException", "CAIRN_DISK_FULL",
          "NSQuotaExceededException", "CAIRN_DISK_FULL",
          "QuotaExceededException", "CAIRN_DISK_FULL",
          "AlreadyBeingCreatedException", "CAIRN_OBJECT_EXISTS");

  /** What each code means to the caller, and what a person can do. */
  private record Meaning(ErrorKind kind, String what, String next) {}

  private static final Map<String, Meaning> MEANINGS =
      Map.of(
          "CAIRN_MISSING",
          new Meaning(ErrorKind.CORRUPT, "the file does not exist", null),
          "CAIRN_OBJECT_EXISTS",
          new Meaning(ErrorKind.CONFLICT, "the file exists already", null),
          "CAIRN_ACCESS_DENIED",
          new Meaning(
              ErrorKind.INVALID,
              "the file system denies access",
              "check the permissions there of the user that Spark runs as"),
          "CAIRN_CREDENTIALS_EXPIRED",
          new Meaning(
              ErrorKind.RETRY,
              "the delegation token is not valid any more",
              "check that Spark renews tokens (spark.kerberos.keytab)"),
          "CAIRN_CORRUPT",
          new Meaning(
              ErrorKind.CORRUPT,
              "the bytes differ from the file system's checksum",
              "restore the file"),
          "CAIRN_FOREIGN_OBJECT",
          new Meaning(
              ErrorKind.CORRUPT,
              "a file is in the place of a folder, or a folder in that of a file",
              "remove it from the checkpoint"),
          "CAIRN_DISK_FULL",
          new Meaning(
              ErrorKind.RETRY, "the quota of the file system is used up", "raise the quota"),
          "CAIRN_CONFIG",
          new Meaning(
              ErrorKind.INVALID,
              "the file system does not accept this name",
              "choose a checkpoint location of plain characters"),
          "CAIRN_SCHEME",
          new Meaning(
              ErrorKind.INVALID,
              "Hadoop has no file system for this scheme",
              "add the jar of the file system (spark.jars; --jar of the command cairn), or correct"
                  + " the checkpoint location"),
          "CAIRN_STORAGE_UNAVAILABLE",
          new Meaning(
              ErrorKind.RETRY,
              "the file system failed",
              "look at the file system's state; in a query Spark retries the task"));

  /** For example of a connector that is older than Hadoop's defaults with suffixes, such as 64m. */
  private static final Meaning NOT_A_NUMBER =
      new Meaning(
          ErrorKind.INVALID,
          "a setting of the file system is not a number",
          "set it to a plain number, as spark.hadoop.<its name>");

  /** Hadoop wraps it as if the name were invalid. */
  private static final Meaning UNKNOWN_HOST =
      new Meaning(
          ErrorKind.RETRY,
          "the host is not known",
          "check the name, DNS and HADOOP_CONF_DIR; in a query Spark retries the task");

  /** Of a connector without its own dependencies, or for another version of Hadoop. */
  private static final Meaning NOT_LINKED =
      new Meaning(
          ErrorKind.INVALID,
          "a class of the file system is missing or of another version",
          "add the jars that it needs (spark.jars; --jar of the command cairn)");

  private FileErrors() {}

  /**
   * Returns {@code error} as one of Cairn's.
   *
   * @param object the URL of the file
   */
  static CairnException translate(Throwable error, String object) {
    if (OpenFiles.areTooMany(error)) {
      return OpenFiles.error("a request to the file system failed", error);
    }
    Throwable cause =
        error instanceof RemoteException remote ? remote.unwrapRemoteException() : error;
    Meaning meaning = meaning(cause);
    return CairnException.of(
        meaning.kind, code(cause), meaning.what + " (" + text(cause) + ")", meaning.next, error);
  }

  private static Meaning meaning(Throwable error) {
    if (error instanceof NumberFormatException) {
      return NOT_A_NUMBER;
    }
    if (isCausedBy(error, UnknownHostException.class)) {
      return UNKNOWN_HOST;
    }
    return isCausedBy(error, LinkageError.class) ? NOT_LINKED : MEANINGS.get(code(error));
  }

  /** Returns the error for a request that the executor has no memory for. */
  static CairnException outOfMemory(OutOfMemoryError error) {
    return CairnException.of(
        ErrorKind.RETRY,
        "CAIRN_STORAGE_UNAVAILABLE",
        "the executor ran out of memory in a request to the file system",
        "raise spark.executor.memory",
        error);
  }

  /**
   * Whether the service refused a creation because another writer's file is there by now. Clients
   * of object stores find that out when they send the bytes, and report a failed upload.
   */
  static boolean isTaken(IOException error) {
    return causes(error).stream()
        .anyMatch(one -> String.valueOf(one.getMessage()).startsWith("412 Precondition Failed"));
  }

  /** Whether a file system object was closed by somebody else, so that another one would do. */
  static boolean isClosed(IOException error) {
    // All of Hadoop's clients say it by this text alone.
    return String.valueOf(error.getMessage()).startsWith("Filesystem closed")
        || String.valueOf(error.getMessage()).contains("FileSystem is closed");
  }

  static boolean isMissing(Exception error) {
    return code(error).equals("CAIRN_MISSING");
  }

  private static String code(Throwable error) {
    if (OpenFiles.areTooMany(error)) {
      // Java says it by FileNotFoundException; the file may be there.
      return "CAIRN_OPEN_FILES";
    }
    if (isCausedBy(error, UnknownHostException.class)) {
      return "CAIRN_STORAGE_UNAVAILABLE";
    }
    if (isCausedBy(error, LinkageError.class)) {
      return "CAIRN_SCHEME";
    }
    for (Throwable one : causes(error)) {
      if (one instanceof ParentNotDirectoryException
          || one instanceof PathIsNotDirectoryException) {
        return "CAIRN_FOREIGN_OBJECT";
      }
      if (one instanceof FileNotFoundException || one instanceof NoSuchFileException) {
        return "CAIRN_MISSING";
      }
      if (one instanceof org.apache.hadoop.fs.FileAlreadyExistsException
          || one instanceof FileAlreadyExistsException) {
        return "CAIRN_OBJECT_EXISTS";
      }
      if (one instanceof SecretManager.InvalidToken) {
        return "CAIRN_CREDENTIALS_EXPIRED";
      }
      if (one instanceof AccessControlException || one instanceof AccessDeniedException) {
        return "CAIRN_ACCESS_DENIED";
      }
      if (one instanceof ChecksumException) {
        return "CAIRN_CORRUPT";
      }
      if (one instanceof IllegalArgumentException) {
        // Hadoop's answer to an invalid name.
        return "CAIRN_CONFIG";
      }
      if (one instanceof UnsupportedFileSystemException || one instanceof ClassNotFoundException) {
        return "CAIRN_SCHEME";
      }
      String known = BY_NAME.get(simpleName(one));
      if (known != null) {
        return known;
      }
    }
    return "CAIRN_STORAGE_UNAVAILABLE";
  }

  private static boolean isCausedBy(Throwable error, Class<? extends Throwable> type) {
    return causes(error).stream().anyMatch(type::isInstance);
  }

  /** The error and its cause: clients wrap the server's answer once. */
  private static List<Throwable> causes(Throwable error) {
    Throwable cause = error.getCause();
    return cause == null ? List.of(error) : List.of(error, cause);
  }

  private static String simpleName(Throwable error) {
    String name = error instanceof RemoteException remote ? remote.getClassName() : null;
    name = name == null ? error.getClass().getName() : name;
    return name.substring(Math.max(name.lastIndexOf('.'), name.lastIndexOf('$')) + 1);
  }

  /** Class and first line, without the query part of a URL, which may be a signature. */
  private static String text(Throwable error) {
    String message = error.getMessage();
    if (message == null && error.getCause() != null) {
      // ExceptionInInitializerError has no text of its own.
      message = error.getCause().toString();
    }
    String line = message == null ? "" : message.lines().findFirst().orElse("");
    line = line.replaceAll("\\?\\S+", "");
    if (line.length() > MAX_TEXT) {
      line = line.substring(0, MAX_TEXT) + "…";
    }
    return simpleName(error) + (line.isEmpty() ? "" : ": " + line);
  }
}
