package io.cairn.spark.errors;

/** What a caller must do about an error; the same words as the engine's. */
public enum ErrorKind {
  /** The same call may succeed later. */
  RETRY,
  /** Somebody else wrote first. */
  CONFLICT,
  /** What is stored cannot be used. */
  CORRUPT,
  /** The set-up is wrong. */
  INVALID,
  /** Cairn broke its own rules. */
  BUG;

  /** Reads the engine's word; an unknown one is a bug of ours. */
  static ErrorKind of(String word) {
    for (ErrorKind kind : values()) {
      if (kind.name().equalsIgnoreCase(word)) {
        return kind;
      }
    }
    return BUG;
  }
}
