package io.cairn.spark.minor;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.execution.python.streaming.ListStateInfo;
import org.apache.spark.sql.execution.python.streaming.MapStateInfo;
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer;
import org.apache.spark.sql.execution.python.streaming.ValueStateInfo;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImpl;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleState;
import org.apache.spark.sql.execution.streaming.state.StateMessage;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.mutable.HashMap;

/**
 * Serves the state of one task of {@code transformWithState} to its Python worker: Spark's messages
 * as Spark's own server does, and the frames of {@link BulkFrames}.
 *
 * <p>A message of Spark begins with the i32 version 0, a frame with 1. Not thread-safe: one thread
 * runs it, and the task's closes it.
 */
public final class BulkStateServer implements Runnable, Closeable {
  private static final Logger LOG = LoggerFactory.getLogger(BulkStateServer.class);
  private static final int SPARKS = 0;
  private static final int MESSAGE_FAILED = 1;
  private static final int FOLDER_LENGTH = 50; // that of a path is 107 on Linux, 103 on macOS

  private final ServerSocketChannel listener;
  private final Path socket;
  private final Method handleRequest;
  private final StatefulProcessorHandleImpl handle;
  private final StructType keySchema;
  private final int maxRecords;
  private final scala.Option<Object> batchTimestampMs;
  private final scala.Option<Object> watermarkMs;
  private final HashMap<String, ValueStateInfo> values = new HashMap<>();
  private final HashMap<String, ListStateInfo> lists = new HashMap<>();
  private final HashMap<String, MapStateInfo> maps = new HashMap<>();
  private final BulkFrames frames;
  private volatile SocketChannel worker;
  private volatile boolean isClosed;

  /** Opens the socket; see {@link SocketFolder}. */
  public BulkStateServer(
      StatefulProcessorHandleImpl handle,
      StructType keySchema,
      int maxRecords,
      scala.Option<Object> batchTimestampMs,
      scala.Option<Object> watermarkMs)
      throws IOException {
    this.handle = handle;
    this.keySchema = keySchema;
    this.maxRecords = maxRecords;
    this.batchTimestampMs = batchTimestampMs;
    this.watermarkMs = watermarkMs;
    handleRequest = sparksHandler();
    BulkRows keyRows = new BulkRows(keySchema, rowDeserializer(keySchema));
    frames = new BulkFrames(handle, keyRows, maxRecords, values, lists, maps);
    socket = SocketFolder.newSocket(shortFolder());
    listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    try {
      listener.bind(UnixDomainSocketAddress.of(socket), 1);
    } catch (IOException error) {
      close();
      throw error;
    }
  }

  /** The JVM's folder for temporary files, or a shorter one: the path of a socket has a limit. */
  private static Path shortFolder() {
    Path folder = Path.of(System.getProperty("java.io.tmpdir"));
    return folder.toString().length() <= FOLDER_LENGTH ? folder : Path.of("/tmp");
  }

  /** The path of the socket. */
  public Path socket() {
    return socket;
  }

  /**
   * Returns the method of Spark's server that answers a message.
   *
   * @throws IllegalStateException this Spark has another server
   */
  public static Method sparksHandler() {
    try {
      Method method =
          TransformWithStateInPySparkStateServer.class.getDeclaredMethod(
              "handleRequest", StateMessage.StateRequest.class);
      method.setAccessible(true);
      return method;
    } catch (ReflectiveOperationException | RuntimeException error) {
      throw new IllegalStateException("Spark's server of the state has no handleRequest", error);
    }
  }

  private static ExpressionEncoder.Deserializer<Row> rowDeserializer(StructType schema) {
    ExpressionEncoder<Row> encoder = ExpressionEncoder.apply(schema);
    return encoder
        .resolveAndBind(encoder.resolveAndBind$default$1(), encoder.resolveAndBind$default$2())
        .createDeserializer();
  }

  @Override
  public void run() {
    try (SocketChannel channel = listener.accept()) {
      worker = channel;
      DataInputStream in =
          new DataInputStream(new BufferedInputStream(Channels.newInputStream(channel)));
      DataOutputStream out =
          new DataOutputStream(new BufferedOutputStream(Channels.newOutputStream(channel)));
      serve(in, out);
    } catch (ClosedChannelException | EOFException ended) {
      LOG.debug("the Python worker has closed its connection", ended);
    } catch (IOException | RuntimeException error) {
      // The worker sees a closed connection, and its task fails.
      if (!isClosed) {
        LOG.warn("the state of a Python worker is served no longer", error);
      }
    }
  }

  private void serve(DataInputStream in, DataOutputStream out) throws IOException {
    TransformWithStateInPySparkStateServer sparks = sparksServer(out);
    // As in Spark: an answered error ends the service, and a later call of the worker fails.
    while (!isClosed && handle.getHandleState() != StatefulProcessorHandleState.CLOSED()) {
      if (in.readInt() == SPARKS) {
        answerMessage(sparks, in, out);
      } else if (!frames.apply(in.readInt(), bytes(in), out)) {
        end();
      }
      out.flush();
    }
  }

  private TransformWithStateInPySparkStateServer sparksServer(DataOutputStream out) {
    // It never runs: it only handles messages, and shares the tables of the variables.
    return new TransformWithStateInPySparkStateServer(
        listener,
        handle,
        keySchema,
        maxRecords,
        batchTimestampMs,
        watermarkMs,
        out,
        values,
        null,
        lists,
        null,
        maps,
        null,
        null,
        null);
  }

  /**
   * Answers as Spark's server does: an error goes to the worker, which raises it in the user's
   * call.
   */
  private void answerMessage(
      TransformWithStateInPySparkStateServer sparks, DataInputStream in, DataOutputStream out)
      throws IOException {
    StateMessage.StateRequest request = StateMessage.StateRequest.parseFrom(bytes(in));
    try {
      handleRequest.invoke(sparks, request);
    } catch (InvocationTargetException invoked) {
      if (!(invoked.getCause() instanceof Exception error)) {
        throw new IllegalStateException(invoked.getCause());
      }
      LOG.error("Error reading message: {}", error.getMessage(), error);
      StateMessage.StateResponse.Builder answer =
          StateMessage.StateResponse.newBuilder().setStatusCode(MESSAGE_FAILED);
      if (error.getMessage() != null) {
        answer.setErrorMessage(error.getMessage());
      }
      writeBytes(out, answer.build().toByteArray());
      end();
    } catch (IllegalAccessException error) {
      throw new IllegalStateException(error);
    }
  }

  private void end() {
    handle.setHandleState(StatefulProcessorHandleState.CLOSED());
  }

  private static byte[] bytes(DataInputStream in) throws IOException {
    byte[] bytes = new byte[in.readInt()];
    in.readFully(bytes);
    return bytes;
  }

  private static void writeBytes(DataOutputStream out, byte[] bytes) throws IOException {
    out.writeInt(bytes.length);
    out.write(bytes);
  }

  @Override
  public void close() throws IOException {
    isClosed = true;
    listener.close();
    SocketChannel channel = worker;
    if (channel != null) {
      channel.close();
    }
    Files.deleteIfExists(socket);
  }
}
