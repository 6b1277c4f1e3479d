package io.cairn.spark.session;

import com.fasterxml.jackson.databind.node.ArrayNode;
import io.cairn.spark.codec.FamilyInfo;
import io.cairn.spark.protocol.CommitRequest;
import io.cairn.spark.protocol.Json;
import java.util.Collection;
import java.util.List;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;

/**
 * The parts of a store's COMMITs that seldom change, as JSON texts that are kept: the attempt, and
 * the column families. Used under the store's lock.
 */
final class CommitJson {
  /** The object that describes an attempt, without what its task adds. */
  private final String attemptStart;

  /** The families of the last commit, and their text. */
  private List<FamilyInfo> lastFamilies = List.of();

  private String lastFamiliesJson = "[]";

  CommitJson(String runId) {
    SparkEnv env = SparkEnv.get();
    String startMs = env == null ? "0" : env.conf().get("spark.app.startTime", "0");
    attemptStart =
        "{\"run_id\":"
            + CommitRequest.quoted(runId)
            + ",\"app_start_ms\":"
            + Long.parseLong(startMs);
  }

  /**
   * The attempt that commits.
   *
   * @param task null: the commit is of no task
   */
  CharSequence attempt(TaskContext task) {
    return new StringBuilder(192)
        .append(attemptStart)
        .append(",\"stage_id\":")
        .append(task == null ? 0 : task.stageId())
        .append(",\"stage_attempt\":")
        .append(task == null ? 0 : task.stageAttemptNumber())
        .append(",\"task_attempt\":")
        .append(task == null ? 0 : task.taskAttemptId())
        .append('}');
  }

  /** The families of the version that is committed. */
  String families(Collection<FamilyInfo> families) {
    List<FamilyInfo> now = List.copyOf(families);
    if (!lastFamilies.equals(now)) {
      ArrayNode array = Json.MAPPER.createArrayNode();
      now.forEach(family -> family.addTo(array));
      lastFamilies = now;
      lastFamiliesJson = array.toString();
    }
    return lastFamiliesJson;
  }
}
