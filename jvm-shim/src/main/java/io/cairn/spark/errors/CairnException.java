package io.cairn.spark.errors;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;

/**
 * A failure with a kind, a code, and where it happened: {@code [CODE] message (store=..,
 * version=.., object=..). Next: ..}
 *
 * <p>Created here, or read from an error of the engine, which has the same fields. Never contains a
 * secret.
 */
public final class CairnException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final ErrorKind kind;
  private final String code;
  private final String plainMessage;
  private final Place place;
  private final String next;

  /** Where it happened; null: not known. */
  private record Place(String store, Long version, String object) implements Serializable {
    static final Place UNKNOWN = new Place(null, null, null);

    @Override
    public String toString() {
      StringBuilder text = new StringBuilder();
      append(text, "store", store);
      append(text, "version", version);
      append(text, "object", object);
      return text.isEmpty() ? "" : text.append(')').toString();
    }

    private static void append(StringBuilder text, String name, Object value) {
      if (value != null) {
        text.append(text.isEmpty() ? " (" : ", ").append(name).append('=').append(value);
      }
    }
  }

  private CairnException(
      ErrorKind kind, String code, String plainMessage, Place place, String next, Throwable cause) {
    super(
        "["
            + code
            + "] "
            + withoutStop(plainMessage)
            + place
            + (next == null ? "" : ". Next: " + withoutStop(next)),
        cause);
    this.kind = kind;
    this.code = code;
    this.plainMessage = plainMessage;
    this.place = place;
    this.next = next;
  }

  public static CairnException of(ErrorKind kind, String code, String message, String next) {
    return of(kind, code, message, next, null);
  }

  public static CairnException of(
      ErrorKind kind, String code, String message, String next, Throwable cause) {
    return new CairnException(kind, code, message, Place.UNKNOWN, next, cause);
  }

  /** The worker, or the connection to it, is gone. Another worker can serve the instance. */
  public static CairnException workerLost(String message, Throwable cause) {
    return of(
        ErrorKind.RETRY,
        "CAIRN_WORKER_LOST",
        message,
        "none if Spark retries the task; else see the executor's log for the worker's end",
        cause);
  }

  public static CairnException protocol(String message) {
    return of(ErrorKind.BUG, "CAIRN_PROTOCOL", message, "report it with the executor's log");
  }

  /** Spark unloaded the provider while a task used it or waited for it. */
  public static CairnException closed(String store) {
    return new CairnException(
        ErrorKind.RETRY,
        "CAIRN_CLOSED",
        "the provider of this store was closed meanwhile",
        new Place(store, null, null),
        "none if Spark retries the task",
        null);
  }

  /** A key with its value, or the list of one key, is larger than a frame. */
  public static CairnException rowTooLarge(long bytes, long frameBytes) {
    return of(
        ErrorKind.INVALID,
        "CAIRN_ROW_TOO_LARGE",
        "a row, or a list of one key, takes "
            + bytes
            + " bytes, but the limit of a frame is "
            + frameBytes,
        "store less under one key");
  }

  /** Reads an error of the engine, from an ERROR frame or the answer to a control call. */
  public static CairnException fromEngine(JsonNode error) {
    return new CairnException(
        ErrorKind.of(text(error, "kind", "bug")),
        text(error, "code", "CAIRN_INTERNAL"),
        text(error, "message", "the engine failed without a message"),
        new Place(
            text(error, "store", null),
            error.hasNonNull("version") ? error.get("version").asLong() : null,
            text(error, "object", null)),
        text(error, "next", null),
        null);
  }

  /** The error as the fields of an ERROR frame; {@code object} is added if none is known. */
  public Map<String, Object> fields(String object) {
    Map<String, Object> fields = new LinkedHashMap<>();
    fields.put("kind", kind.name().toLowerCase(Locale.ROOT));
    fields.put("code", code);
    fields.put("message", plainMessage);
    fields.put("store", place.store);
    fields.put("version", place.version);
    fields.put("object", place.object == null ? object : place.object);
    fields.put("next", next);
    return fields;
  }

  /**
   * The same error with the store and version filled in where they were missing.
   *
   * @param version negative: unknown
   */
  public CairnException at(String store, long version) {
    if (place.store != null && (place.version != null || version < 0)) {
      return this;
    }
    Long known = version < 0 ? null : Long.valueOf(version);
    Place located =
        new Place(
            place.store == null ? store : place.store,
            place.version == null ? known : place.version,
            place.object);
    CairnException error = new CairnException(kind, code, plainMessage, located, next, getCause());
    error.setStackTrace(getStackTrace());
    return error;
  }

  public ErrorKind kind() {
    return kind;
  }

  public String code() {
    return code;
  }

  /** The object that the error is about, or null. */
  public String object() {
    return place.object;
  }

  public boolean isWorkerLost() {
    return code.equals("CAIRN_WORKER_LOST");
  }

  /** The engine does not have this instance, or no version of it is loaded. */
  public boolean isInstanceUnknown() {
    return code.equals("CAIRN_UNKNOWN_INSTANCE");
  }

  /** Other credentials may help: these have expired, or were replaced and are refused now. */
  public boolean areCredentialsRefused() {
    return code.equals("CAIRN_CREDENTIALS_EXPIRED") || code.equals("CAIRN_ACCESS_DENIED");
  }

  private static String text(JsonNode error, String field, String otherwise) {
    return error.hasNonNull(field) ? error.get(field).asText() : otherwise;
  }

  private static String withoutStop(String sentence) {
    return sentence.endsWith(".") ? sentence.substring(0, sentence.length() - 1) : sentence;
  }
}
