package io.cairn.suites;

import java.io.File;
import java.net.URI;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;

/** What the suites of a store have in common: tests that do not run, and Cairn's latest version. */
final class StoreTests {
  /** They ask Spark's provider, by private methods, who holds its lock, and else wait forever. */
  private static final List<String> OF_THE_LOCK =
      List.of(
          "Rocks DB task completion listener does not double unlock acquireThread",
          "RocksDB task completion listener correctly releases for failed task");

  /** The codecs run a second time under the names of their classes. */
  private static final String REPEATED = "with codec org.apache.spark.io.";

  private StoreTests() {}

  static boolean isLeftOut(String name) {
    return name.contains(REPEATED) || OF_THE_LOCK.stream().anyMatch(name::startsWith);
  }

  static boolean isOfSpark(RocksDBStateStoreProvider provider) {
    return provider.getClass() == RocksDBStateStoreProvider.class;
  }

  /** Returns the latest version in the folder of a provider's store. */
  static int latestVersion(RocksDBStateStoreProvider provider) {
    URI store = provider.stateStoreId().storeCheckpointLocation().toUri();
    String[] changelogs = new File(store.getPath(), "changelog").list();
    return changelogs == null
        ? 0
        : Stream.of(changelogs)
            .filter(name -> Character.isDigit(name.charAt(0)))
            .mapToInt(name -> Integer.parseInt(name.split("[._]")[0]))
            .max()
            .orElse(0);
  }
}
