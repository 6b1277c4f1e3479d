package io.cairn.spark.metadata;

import java.io.ByteArrayInputStream;
import java.io.EOFException;
import org.apache.hadoop.fs.PositionedReadable;
import org.apache.hadoop.fs.Seekable;

/** A file in memory, as Hadoop's input streams need it. Not thread-safe. */
final class BytesInput extends ByteArrayInputStream implements Seekable, PositionedReadable {
  BytesInput(byte[] content) {
    super(content);
  }

  @Override
  public void seek(long position) throws EOFException {
    if (position < 0 || position > count) {
      throw new EOFException("position " + position + " of " + count + " bytes");
    }
    pos = (int) position;
  }

  @Override
  public long getPos() {
    return pos;
  }

  @Override
  public boolean seekToNewSource(long position) {
    return false;
  }

  @Override
  public int read(long position, byte[] target, int offset, int length) {
    if (position >= count) {
      return -1;
    }
    int read = (int) Math.min(length, count - position);
    System.arraycopy(buf, (int) position, target, offset, read);
    return read;
  }

  @Override
  public void readFully(long position, byte[] target, int offset, int length) throws EOFException {
    if (position < 0 || position + length > count) {
      throw new EOFException(length + " bytes at " + position + " of " + count + " bytes");
    }
    System.arraycopy(buf, (int) position, target, offset, length);
  }

  @Override
  public void readFully(long position, byte[] target) throws EOFException {
    readFully(position, target, 0, target.length);
  }
}
