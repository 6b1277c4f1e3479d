package io.cairn.spark.engine;

/** The entry point of a worker over Py4J. {@code cairn/engine/control.py} names this interface. */
public interface EngineEntry {
  /** Runs a control call; returns {@code {"ok": …}} or {@code {"error": …}} and never throws. */
  String call(String method, String jsonArguments);
}
