package io.cairn.spark.protocol;

/** The id of a session on both channels: {@code instance << 32 | number}. */
public final class SessionId {
  private SessionId() {}

  /**
   * Packs an id.
   *
   * @param instance number of the provider instance, unique in the JVM
   * @param number number of the session in its instance, from 1, ascending
   */
  public static long of(int instance, int number) {
    return (long) instance << 32 | number;
  }
}
