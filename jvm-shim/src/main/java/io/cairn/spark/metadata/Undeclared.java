package io.cairn.spark.metadata;

import java.util.concurrent.Callable;

/** Throws checked exceptions through methods of Scala traits, which declare none. */
final class Undeclared {
  private Undeclared() {}

  static <T> T call(Callable<T> work) {
    try {
      return work.call();
    } catch (Exception e) {
      throw Undeclared.<RuntimeException>sneaky(e);
    }
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E sneaky(Throwable error) throws E {
    throw (E) error;
  }
}
