package io.cairn.spark.protocol;

/** The reply to a request that was sent to the engine. Not thread-safe. */
public interface PendingRows {
  /**
   * Waits for the reply, and returns it once. The page stays valid, whatever the source does next.
   * Null: there is no reply, because the worker was lost, the engine refused the request or the
   * session has ended; a caller that needs the rows requests them again.
   */
  RowPage take();
}
