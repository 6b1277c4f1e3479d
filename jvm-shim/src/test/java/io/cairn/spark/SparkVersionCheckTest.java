package io.cairn.spark;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.minor.SparkMinor;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A jar of another minor of Spark is refused before it reads or writes. */
class SparkVersionCheckTest {
  /** The jar was compiled against the Spark of this test. */
  @Test
  void theSparkOfThisJarIsAccepted() {
    assertDoesNotThrow(() -> SparkVersionCheck.require());
  }

  /** Distributors add to the version. */
  @ParameterizedTest
  @ValueSource(strings = {".0", ".12", ".1-vendor-2"})
  void everyPatchReleaseOfTheMinorIsAccepted(String rest) {
    assertDoesNotThrow(() -> SparkVersionCheck.require(SparkMinor.NAME + rest));
  }

  /** It might load, and fail in a commit with a NoSuchMethodError. */
  @ParameterizedTest
  @ValueSource(strings = {"3.5.4", "4.0.1", "4.30.0", "5.0.0", ""})
  void anotherMinorIsRefused(String running) {
    CairnException error =
        assertThrows(CairnException.class, () -> SparkVersionCheck.require(running));

    assertEquals("CAIRN_SPARK_VERSION", error.code());
    assertTrue(error.getMessage().contains("for Spark " + SparkMinor.NAME), error::getMessage);
    assertTrue(error.getMessage().contains("cairn jar"), error::getMessage);
  }
}
