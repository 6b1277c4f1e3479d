package io.cairn.spark.metadata;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;

/**
 * A file that appears whole when its stream is closed, and not at all after {@code cancel}.
 *
 * <p>Up to 1 MiB is kept in memory, so that the PUT can be repeated. A larger file goes through a
 * stream of Hadoop's, which uploads it in parts; S3 shows it when the upload is completed.
 */
final class AtomicFile extends CancellableFSDataOutputStream {
  private static final int MEMORY_BYTES_MAX = 1 << 20;

  /** Is told that the file is stored. */
  @FunctionalInterface
  interface Note {
    /**
     * @param content the bytes; null: they were too many to be kept
     * @throws IOException the writer must not go on; the file stays
     */
    void stored(byte[] content) throws IOException;
  }

  private final Body body;

  private AtomicFile(Body body) {
    super(body);
    this.body = body;
  }

  static AtomicFile of(Put put, Note note) {
    return new AtomicFile(new Body(put, note));
  }

  @Override
  public void close() throws IOException {
    body.store();
  }

  @Override
  public void cancel() {
    body.discard();
  }

  /** The bytes on their way to S3. */
  private static final class Body extends OutputStream {
    private final Put put;
    private final Note note;

    /** Null as soon as the bytes go into the stream. */
    private ByteArrayOutputStream memory = new ByteArrayOutputStream();

    private FSDataOutputStream stream;
    private boolean isEnded;

    Body(Put put, Note note) {
      this.put = put;
      this.note = note;
    }

    @Override
    public synchronized void write(int value) throws IOException {
      write(new byte[] {(byte) value}, 0, 1);
    }

    @Override
    public synchronized void write(byte[] bytes, int offset, int length) throws IOException {
      if (isEnded) {
        throw new IOException("the stream of " + put.file() + " is closed");
      }
      if (memory != null && memory.size() + length > MEMORY_BYTES_MAX) {
        stream = put.open();
        memory.writeTo(stream);
        memory = null;
      }
      (memory != null ? memory : stream).write(bytes, offset, length);
    }

    synchronized void store() throws IOException {
      if (isEnded) {
        return;
      }
      isEnded = true;
      byte[] content = memory == null ? null : memory.toByteArray();
      if (content != null) {
        put.send(content);
      } else {
        put.close(stream);
      }
      note.stored(content);
    }

    synchronized void discard() {
      if (isEnded) {
        return;
      }
      isEnded = true;
      if (stream != null) {
        // Ends the upload in parts; nothing becomes visible.
        stream.abort();
      }
    }
  }
}
