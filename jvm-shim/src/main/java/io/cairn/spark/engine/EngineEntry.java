package io.cairn.spark.engine;

/** A worker's entry point as Python shows it over Py4J. The engine names this interface. */
public interface EngineEntry {
  /** Runs a control call; returns {@code {"ok": …}} or {@code {"error": …}} and never throws. */
  String call(String method, String jsonArguments);
}
