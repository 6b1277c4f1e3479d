package io.cairn.spark.errors;

import com.fasterxml.jackson.databind.JsonNode;
import io.cairn.spark.protocol.FrameHeader;

/**
 * A failure with a kind, a code, and where it happened: {@code [CODE] message (store=..,
 * version=.., object=..). Next: ..}
 *
 * <p>Made here, or read from the engine's errors, which have the same fields. Never carries a
 * secret.
 */
public final class CairnException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final ErrorKind kind;
  private final String code;
  private final String plainMessage;
  private final String store;
  private final Long version;
  private final String object;
  private final String next;

  private CairnException(
      ErrorKind kind,
      String code,
      String plainMessage,
      String store,
      Long version,
      String object,
      String next,
      Throwable cause) {
    super(text(code, plainMessage, store, version, object, next), cause);
    this.kind = kind;
    this.code = code;
    this.plainMessage = plainMessage;
    this.store = store;
    this.version = version;
    this.object = object;
    this.next = next;
  }

  public static CairnException of(ErrorKind kind, String code, String message, String next) {
    return new CairnException(kind, code, message, null, null, null, next, null);
  }

  public static CairnException of(
      ErrorKind kind, String code, String message, String next, Throwable cause) {
    return new CairnException(kind, code, message, null, null, null, next, cause);
  }

  /**
   * The worker, or the connection to it, is gone: whoever has nothing in it may go on with another.
   */
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

  /** Spark unloaded the provider while a task used it, or waited for it. */
  public static CairnException closed(String store) {
    return new CairnException(
        ErrorKind.RETRY,
        "CAIRN_CLOSED",
        "the provider of this store was closed meanwhile",
        store,
        null,
        null,
        "none if Spark retries the task",
        null);
  }

  /** A key and its value, or the list of one key, that no frame can carry. */
  public static CairnException rowTooLarge(long bytes) {
    return of(
        ErrorKind.INVALID,
        "CAIRN_ROW_TOO_LARGE",
        "a row, or a list of one key, takes "
            + bytes
            + " bytes; a frame carries "
            + FrameHeader.MAX_PAYLOAD_BYTES,
        "keep less in one key");
  }

  /** Reads an error of the engine, from an ERROR frame or a control answer. */
  public static CairnException fromEngine(JsonNode error) {
    JsonNode version = error.get("version");
    return new CairnException(
        ErrorKind.of(word(error, "kind", "bug")),
        word(error, "code", "CAIRN_INTERNAL"),
        word(error, "message", "the engine failed without a message"),
        word(error, "store", null),
        version == null || version.isNull() ? null : version.asLong(),
        word(error, "object", null),
        word(error, "next", null),
        null);
  }

  /** The same error with the store and version filled in where they were missing. */
  public CairnException at(String storeName, long atVersion) {
    if (store != null && version != null) {
      return this;
    }
    CairnException located =
        new CairnException(
            kind,
            code,
            plainMessage,
            store == null ? storeName : store,
            version == null ? Long.valueOf(atVersion) : version,
            object,
            next,
            getCause());
    located.setStackTrace(getStackTrace());
    return located;
  }

  public ErrorKind kind() {
    return kind;
  }

  public String code() {
    return code;
  }

  /** The object it concerns, or null. */
  public String object() {
    return object;
  }

  public boolean isWorkerLost() {
    return code.equals("CAIRN_WORKER_LOST");
  }

  /**
   * Whether the same again may succeed: in another worker, with the instance opened anew, or with
   * renewed keys.
   */
  public boolean isRecoverable() {
    return isWorkerLost() || code.equals("CAIRN_UNKNOWN_INSTANCE") || areKeysExpired();
  }

  public boolean areKeysExpired() {
    return code.equals("CAIRN_CREDENTIALS_EXPIRED");
  }

  private static String word(JsonNode error, String field, String otherwise) {
    JsonNode value = error.get(field);
    return value == null || value.isNull() ? otherwise : value.asText();
  }

  private static String text(
      String code, String message, String store, Long version, String object, String next) {
    StringBuilder text =
        new StringBuilder("[").append(code).append("] ").append(withoutStop(message));
    String separator = " (";
    if (store != null) {
      text.append(separator).append("store=").append(store);
      separator = ", ";
    }
    if (version != null) {
      text.append(separator).append("version=").append(version);
      separator = ", ";
    }
    if (object != null) {
      text.append(separator).append("object=").append(object);
      separator = ", ";
    }
    if (!separator.equals(" (")) {
      text.append(')');
    }
    if (next != null) {
      text.append(". Next: ").append(withoutStop(next));
    }
    return text.toString();
  }

  private static String withoutStop(String sentence) {
    return sentence.endsWith(".") ? sentence.substring(0, sentence.length() - 1) : sentence;
  }
}
