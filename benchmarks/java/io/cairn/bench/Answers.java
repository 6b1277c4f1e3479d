package io.cairn.bench;

/** Checks what a workload read: a wrong answer gives no figure. */
final class Answers {
  private Answers() {}

  /**
   * Checks one answer.
   *
   * @throws IllegalStateException the answer is wrong
   */
  static void require(boolean isRight, String what, Object actual) {
    if (!isRight) {
      throw new IllegalStateException(
          "no figure, because of a wrong answer: " + what + ": " + actual);
    }
  }
}
