package io.cairn.spark.metadata;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * Refuses Spark's offline repartition of a checkpoint whose state is Cairn's.
 *
 * <p>Spark would refuse it too, because it repartitions the state of its own provider only, but
 * after it has written an entry to the offset log, with which the query does not start again. Here
 * the first file of a repartition is refused, so nothing has been written.
 */
public final class RepartitionCheck {
  private static final String RUNNER =
      "org.apache.spark.sql.execution.streaming.state.OfflineStateRepartitionRunner";
  private static final String OFFSETS = "offsets";
  private static final Set<String> LOGS = Set.of(OFFSETS, "commits");
  private static final String PROVIDER = "spark.sql.streaming.stateStore.providerClass";

  private RepartitionCheck() {}

  /**
   * Throws if an offline repartition is about to write a log of a checkpoint with Cairn's state.
   *
   * @param file the file that will be written
   * @param files reads the logs of the checkpoint
   * @param provider the class of Cairn's provider
   */
  public static void refuse(Path file, CheckpointFileManager files, String provider) {
    Path log = file.getParent();
    if (log == null || !LOGS.contains(log.getName()) || !isRepartition()) {
      return;
    }
    Path checkpoint = log.getParent();
    if (Undeclared.call(() -> provider(new Path(checkpoint, OFFSETS), files)).equals(provider)) {
      throw CairnException.of(
          ErrorKind.INVALID,
          "CAIRN_REPARTITION",
          "Spark's offline repartition does not support the state of Cairn; nothing was changed in "
              + checkpoint,
          "change spark.sql.shuffle.partitions by `cairn repartition`, or start the query again"
              + " with its number of partitions");
    }
  }

  private static boolean isRepartition() {
    return StackWalker.getInstance()
        .walk(frames -> frames.anyMatch(frame -> frame.getClassName().startsWith(RUNNER)));
  }

  /** The provider that the newest entry of an offset log names; empty if there is none. */
  private static String provider(Path offsets, CheckpointFileManager files) throws IOException {
    OptionalLong newest =
        Arrays.stream(files.list(offsets))
            .map(status -> status.getPath().getName())
            .filter(name -> name.matches("\\d{1,18}"))
            .mapToLong(Long::parseLong)
            .max();
    if (newest.isEmpty()) {
      return "";
    }
    try (InputStream entry = files.open(new Path(offsets, Long.toString(newest.getAsLong())))) {
      // The first line is the version of the log, the second one the metadata.
      String[] lines = new String(entry.readAllBytes(), StandardCharsets.UTF_8).split("\n", 3);
      JsonNode metadata = new ObjectMapper().readTree(lines.length > 1 ? lines[1] : "{}");
      return metadata.path("conf").path(PROVIDER).asText();
    }
  }
}
