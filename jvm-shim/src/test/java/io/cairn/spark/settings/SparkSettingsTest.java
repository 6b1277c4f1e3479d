package io.cairn.spark.settings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Field;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.internal.config.ConfigEntry;
import org.apache.spark.sql.execution.streaming.state.RocksDBConf$;
import org.apache.spark.sql.internal.SQLConf$;
import org.junit.jupiter.api.Test;

/** A setting of Spark's is honoured, or named in a warning, but never ignored in silence. */
class SparkSettingsTest {
  private static final String STATE_STORE = "spark.sql.streaming.stateStore.";

  /** One setting of Spark's SQL, and one of its RocksDB provider: without them nothing was read. */
  private static final Set<String> KNOWN_OF_BOTH_SOURCES =
      Set.of(STATE_STORE + "providerClass", STATE_STORE + "rocksdb.formatVersion");

  private static List<String> named(Map<String, String> confs) {
    return SettingsTable.get().ofSpark().withoutEffect(confs);
  }

  /** A setting that a new version of Spark adds must be put into one of the lists. */
  @Test
  void everySettingOfSparksStateStoresIsInTheTable() throws Exception {
    Set<String> unknown = new TreeSet<>();
    for (ConfigEntry<?> entry : SQLConf$.MODULE$.getConfigEntries()) {
      if (entry.key().startsWith(STATE_STORE)) {
        unknown.add(entry.key());
      }
    }
    for (Field field : RocksDBConf$.class.getDeclaredFields()) {
      if (field.getName().endsWith("_CONF_KEY")) {
        field.setAccessible(true);
        unknown.add(STATE_STORE + "rocksdb." + field.get(RocksDBConf$.MODULE$));
      }
    }
    assertTrue(unknown.containsAll(KNOWN_OF_BOTH_SOURCES), unknown.toString());
    unknown.removeIf(SettingsTable.get().ofSpark()::knows);

    assertEquals(Set.of(), unknown);
  }

  /** A user who tunes Spark's RocksDB must learn which setting of Cairn's to use instead. */
  @Test
  void settingsWithoutAnEffectAreNamedWithWhatHoldsInstead() {
    List<String> named =
        named(
            Map.of(
                STATE_STORE + "rocksdb.blockCacheSizeMB",
                "64",
                STATE_STORE + "ROCKSDB.LockAcquireTimeoutMs",
                "1000",
                STATE_STORE + "compression.codec",
                "zstd",
                STATE_STORE + "maxVersionsToDeletePerMaintenance",
                "5",
                "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint",
                "0.9",
                STATE_STORE + "rocksdb.noSuchThing",
                "1"));

    String text = String.join("\n", named);
    assertEquals(6, named.size(), text);
    assertTrue(text.contains("blockCacheSizeMB=64 (cairn.workerMemory)"), text);
    assertTrue(text.contains("LockAcquireTimeoutMs=1000 (cairn.lockTimeoutMs)"), text);
    assertTrue(text.contains("compression.codec=zstd (changelogs"), text);
    assertTrue(text.contains("noSuchThing=1 (not a setting that Cairn knows)"), text);
  }

  /** Spark writes these into the offset log: a restart must not warn of what nobody has set. */
  @Test
  void valuesThatAskForWhatHoldsAnywayAreNotNamed() {
    assertEquals(
        List.of(),
        named(
            Map.of(
                STATE_STORE + "compression.codec",
                "lz4",
                STATE_STORE + "rocksdb.formatVersion",
                "5",
                STATE_STORE + "rocksdb.mergeOperatorVersion",
                "2",
                STATE_STORE + "rocksdb.changelogCheckpointing.enabled",
                "true",
                STATE_STORE + "rocksdb.trackTotalNumberOfRows",
                "false",
                STATE_STORE + "minDeltasForSnapshot",
                "3",
                "spark.sql.shuffle.partitions",
                "7")));
  }
}
