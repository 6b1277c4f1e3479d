package io.cairn.spark.errors;

import com.sun.management.UnixOperatingSystemMXBean;
import java.lang.management.ManagementFactory;

/** The error of a process that may open no more files or sockets. */
public final class OpenFiles {
  private static final int MAX_CAUSES = 8;

  /** The system's text of EMFILE; that of ENFILE begins with it. */
  private static final String TEXT = "Too many open files";

  /** Of ENFILE: the limit is that of the machine. */
  private static final String OF_MACHINE = TEXT + " in system";

  private OpenFiles() {}

  /**
   * Whether an error means this. Java has no class for it: it is an {@code IOException}, or even a
   * {@code FileNotFoundException}, with the system's text.
   */
  public static boolean areTooMany(Throwable error) {
    return says(error, TEXT);
  }

  private static boolean says(Throwable error, String text) {
    int count = 0;
    for (Throwable one = error; one != null && count++ < MAX_CAUSES; one = one.getCause()) {
      if (String.valueOf(one.getMessage()).contains(text)) {
        return true;
      }
    }
    return false;
  }

  /**
   * Returns the error.
   *
   * @param what did not succeed
   */
  public static CairnException error(String what, Throwable cause) {
    return CairnException.of(
        ErrorKind.RETRY,
        "CAIRN_OPEN_FILES",
        what + ": " + (says(cause, OF_MACHINE) ? OF_MACHINE : TEXT) + "; this JVM" + counts(),
        "raise the executor's limit of open files (ulimit -n; LimitNOFILE of a service; nofile of"
            + " a container), or use more executors",
        cause);
  }

  private static String counts() {
    return ManagementFactory.getOperatingSystemMXBean() instanceof UnixOperatingSystemMXBean system
        ? " has "
            + system.getOpenFileDescriptorCount()
            + " of "
            + system.getMaxFileDescriptorCount()
        : " is at its limit";
  }
}
