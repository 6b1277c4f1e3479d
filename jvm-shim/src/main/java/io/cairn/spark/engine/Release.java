package io.cairn.spark.engine;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;

/** The release of this jar. A worker of another release refuses to start. */
final class Release {
  private static final String RESOURCE = "/io/cairn/spark/VERSION";

  static final String NAME = read();

  private Release() {}

  private static String read() {
    try (InputStream file = Release.class.getResourceAsStream(RESOURCE)) {
      return new String(file.readAllBytes(), StandardCharsets.US_ASCII).trim();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
