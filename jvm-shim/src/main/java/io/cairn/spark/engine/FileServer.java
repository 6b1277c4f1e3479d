package io.cairn.spark.engine;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.files.FileSystems;
import io.cairn.spark.protocol.FrameHeader;
import io.cairn.spark.protocol.Json;
import io.cairn.spark.protocol.StartAnswer;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;

/**
 * A program that serves one file system to a Python process outside Spark, such as the command
 * {@code cairn}: it connects to that process's socket, as an executor does to its workers.
 *
 * <p>It reads one JSON line, {@code {"protocol", "socket", "token", "root", "timeout_ms", "conf"}},
 * answers one, {@code {"file_system"}} or {@code {"error"}}, and ends with its standard input.
 * Spec: docs/protocol.md, "Outside Spark".
 */
public final class FileServer {
  private FileServer() {}

  public static void main(String[] arguments) throws IOException {
    PrintStream output = System.out;
    // What libraries print is no answer.
    System.setOut(System.err);
    ObjectNode answer = Json.object();
    try {
      answer.put(StorageConnections.FILE_SYSTEM, start(firstLine()));
    } catch (CairnException e) {
      answer.set("error", Json.MAPPER.valueToTree(e.fields(null)));
    }
    output.print(StartAnswer.of(Json.MAPPER.writeValueAsString(answer)));
    output.flush();
    while (System.in.read() >= 0) {
      // Only the end matters.
    }
    // Clients of file systems leave threads behind.
    Runtime.getRuntime().halt(0);
  }

  private static JsonNode firstLine() throws IOException {
    StringBuilder line = new StringBuilder();
    java.io.Reader input = new java.io.InputStreamReader(System.in, StandardCharsets.UTF_8);
    for (int next = input.read(); next >= 0 && next != '\n'; next = input.read()) {
      line.append((char) next);
    }
    return Json.MAPPER.readTree(line.toString());
  }

  private static int start(JsonNode request) {
    if (request.path("protocol").asInt() != FrameHeader.PROTOCOL) {
      throw CairnException.protocol("the command speaks another protocol than this jar");
    }
    Configuration conf = new Configuration();
    JsonNode settings = request.path("conf");
    settings.fieldNames().forEachRemaining(name -> conf.set(name, settings.get(name).asText()));
    int number =
        FileSystems.register(new org.apache.hadoop.fs.Path(request.path("root").asText()), conf);
    new StorageConnections(
            "command",
            Path.of(request.path("socket").asText()),
            request.path("token").asText(),
            request.path("timeout_ms").asInt())
        .open();
    return number;
  }
}
