package io.cairn.spark.metadata;

import java.util.OptionalLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The names of the entries of Spark's metadata logs: {@code <batch>} or {@code <batch>.compact}.
 */
final class LogEntry {
  private static final Pattern NAME = Pattern.compile("(\\d{1,18})(?:\\.compact)?");

  private LogEntry() {}

  /** Returns the batch of an entry; empty if no entry has this name. */
  static OptionalLong batch(String name) {
    Matcher found = NAME.matcher(name);
    return found.matches() ? OptionalLong.of(Long.parseLong(found.group(1))) : OptionalLong.empty();
  }
}
