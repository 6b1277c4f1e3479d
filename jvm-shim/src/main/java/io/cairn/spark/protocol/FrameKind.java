package io.cairn.spark.protocol;

/** Kinds of frames on the data channel. DO NOT RENUMBER: docs/architecture.md, "Data channel". */
public final class FrameKind {
  public static final int HELLO = 0x01;
  public static final int WRITES = 0x02;
  public static final int GET = 0x03;
  public static final int SCAN = 0x04;
  public static final int CHANGES = 0x05;
  public static final int HELLO_REPLY = 0x81;
  public static final int GET_REPLY = 0x83;
  public static final int SCAN_REPLY = 0x84;
  public static final int CHANGES_REPLY = 0x85;
  public static final int ERROR = 0xFF;

  /** Flag of SCAN and CHANGES replies: rows follow after the last one. */
  public static final int FLAG_MORE = 1;

  private FrameKind() {}
}
