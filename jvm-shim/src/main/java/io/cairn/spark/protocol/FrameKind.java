package io.cairn.spark.protocol;

/** Kinds of frames on the data channel. DO NOT RENUMBER: docs/protocol.md, "Data channel". */
public final class FrameKind {
  public static final int HELLO = 0x01;
  public static final int WRITES = 0x02;
  public static final int GET = 0x03;
  public static final int SCAN = 0x04;
  public static final int CHANGES = 0x05;
  public static final int LOOKUP = 0x06;
  public static final int COMMIT = 0x08;
  public static final int RANGES = 0x09;
  public static final int SERVE_FILES = 0x0A;

  // Requests of the worker on a storage connection.
  public static final int FILE_READ = 0x10;
  public static final int FILE_WRITE = 0x11;
  public static final int FILE_DATA = 0x12;
  public static final int FILE_RENAME = 0x13;
  public static final int FILE_STATUS = 0x14;
  public static final int FILE_LIST = 0x15;
  public static final int FILE_DELETE = 0x16;
  public static final int FILE_SYSTEM = 0x17;

  public static final int ERROR = 0xFF;

  /** A reply has the kind of its request with this bit set. WRITES has no reply. */
  public static final int REPLY = 0x80;

  /** Flag of a reply, or of FILE_DATA: more follows after it. */
  public static final int FLAG_MORE = 1;

  private FrameKind() {}
}
