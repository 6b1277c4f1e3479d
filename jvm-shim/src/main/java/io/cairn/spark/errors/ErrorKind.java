package io.cairn.spark.errors;

/** What a caller must do about an error; the names are those of the engine's kinds. */
public enum ErrorKind {
  /** The same call may succeed later. */
  RETRY,
  /** Another writer was first. */
  CONFLICT,
  /** Stored data cannot be used. */
  CORRUPT,
  /** The configuration or the environment is wrong. */
  INVALID,
  /** Cairn broke its own rules. */
  BUG;

  /** Parses the engine's name of a kind; an unknown one becomes BUG. */
  static ErrorKind of(String name) {
    for (ErrorKind kind : values()) {
      if (kind.name().equalsIgnoreCase(name)) {
        return kind;
      }
    }
    return BUG;
  }
}
