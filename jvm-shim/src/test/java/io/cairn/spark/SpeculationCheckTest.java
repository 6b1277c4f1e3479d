package io.cairn.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.logging.log4j.Level;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Whoever uses speculation with format 1 must know what that format does not promise. */
class SpeculationCheckTest {
  private final AtomicBoolean isWarned = new AtomicBoolean();

  /** Each of hundreds of stores is opened by the same executor. */
  @Test
  void speculationWithFormatOneIsNamedOnce() {
    try (LogOf log = new LogOf(SpeculationCheck.class.getName(), Level.WARN)) {
      for (int store = 0; store < 3; store++) {
        SpeculationCheck.warn(conf("true"), false, isWarned);
      }

      assertEquals(1, log.lines.size(), log.lines::toString);
      assertTrue(log.lines.get(0).contains("checkpointFormatVersion=2"), log.lines::toString);
    }
  }

  /** A warning that means nothing would hide the others. */
  @ParameterizedTest
  @CsvSource({"true,true", "false,false", "false,true", ",false"})
  void noOtherQueryIsWarned(String speculation, boolean hasCheckpointIds) {
    try (LogOf log = new LogOf(SpeculationCheck.class.getName(), Level.WARN)) {
      SpeculationCheck.warn(conf(speculation), hasCheckpointIds, isWarned);

      assertEquals(0, log.lines.size(), log.lines::toString);
    }
  }

  private static SparkConf conf(String speculation) {
    SparkConf conf = new SparkConf(false);
    return speculation == null ? conf : conf.set("spark.speculation", speculation);
  }
}
