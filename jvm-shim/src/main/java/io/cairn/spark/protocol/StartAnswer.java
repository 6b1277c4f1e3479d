package io.cairn.spark.protocol;

/** The line with which a started process answers, among what else is printed there. */
public final class StartAnswer {
  private static final String MARK = "cairn-answer: ";

  private StartAnswer() {}

  /** Returns the JSON of an answer; null: the line is for the log. */
  public static String jsonOf(String line) {
    return line.startsWith(MARK) ? line.substring(MARK.length()) : null;
  }

  /** Returns an answer, with an end for the line that was begun before it. */
  public static String of(String json) {
    return "\n" + MARK + json + "\n";
  }
}
