package io.cairn.spark.cache;

import java.util.ArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/** Lets a test act in the fold of a session's writes. */
public final class FoldStep {
  private FoldStep() {}

  /** Runs an action in the first step of the fold that is none of sending. */
  public static void run(CacheSession session, Runnable action) {
    AtomicBoolean areSent = new AtomicBoolean();
    session.droppedFamilies =
        new ArrayList<>() {
          private static final long serialVersionUID = 1;

          @Override
          public void forEach(Consumer<? super Integer> each) {
            if (areSent.getAndSet(true)) {
              action.run();
            }
          }
        };
  }
}
