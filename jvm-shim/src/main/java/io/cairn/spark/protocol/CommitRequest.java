package io.cairn.spark.protocol;

import com.fasterxml.jackson.core.io.JsonStringEncoder;
import java.nio.charset.StandardCharsets;

/**
 * The payload of a COMMIT: a JSON object, written as text. The parts that seldom change are texts
 * that the caller keeps; a tree of nodes would take several times as long.
 */
public final class CommitRequest {
  private final StringBuilder text = new StringBuilder(1024).append('{');

  /** What a session has sent. */
  public record Sent(long frames, long rows) {}

  /** Adds a number. */
  public CommitRequest put(String name, long value) {
    name(name).append(value);
    return this;
  }

  /** Adds a boolean. */
  public CommitRequest put(String name, boolean value) {
    name(name).append(value);
    return this;
  }

  /** Adds a value that is JSON already. */
  public CommitRequest putJson(String name, CharSequence json) {
    name(name).append(json);
    return this;
  }

  /** Adds a text, or null. */
  public CommitRequest put(String name, String value) {
    return putJson(name, quoted(value));
  }

  private StringBuilder name(String name) {
    if (text.length() > 1) {
      text.append(',');
    }
    return text.append('"').append(name).append("\":");
  }

  /** A text as JSON; null as {@code null}. */
  public static String quoted(String value) {
    if (value == null) {
      return "null";
    }
    return '"' + String.valueOf(JsonStringEncoder.getInstance().quoteAsString(value)) + '"';
  }

  /** The whole COMMIT frame. Does not change this request: it may be sent again. */
  byte[] frame(long session, long sequence, Sent sent) {
    String json = text + ",\"frames\":" + sent.frames + ",\"rows\":" + sent.rows + '}';
    byte[] payload = json.getBytes(StandardCharsets.UTF_8);
    byte[] frame = new byte[FrameHeader.BYTES + payload.length];
    new FrameHeader(FrameKind.COMMIT, 0, session, sequence, 0, 0, payload.length).write(frame, 0);
    System.arraycopy(payload, 0, frame, FrameHeader.BYTES, payload.length);
    return frame;
  }
}
