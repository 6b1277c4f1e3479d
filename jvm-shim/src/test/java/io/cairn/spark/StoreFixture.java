package io.cairn.spark;

import io.cairn.spark.minor.MinorStore;
import io.cairn.spark.session.StoreSession;
import io.cairn.spark.settings.SettingsTable;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileUtil;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** A checkpoint folder, and providers on it as Spark would create them, with a real worker. */
public final class StoreFixture implements AutoCloseable {
  public static final String CAIRN = SettingsTable.get().prefix();

  /** A Python that has the package. */
  public static final String PYTHON = System.getProperty("cairn.test.python", "python3");

  static final StructType KEY = struct(DataTypes.LongType);
  static final StructType VALUE = struct(DataTypes.StringType);
  public static final Option<String> NO_ID = Option.empty();

  /** One per thread, because creating one compiles code. */
  private static final ThreadLocal<UnsafeProjection> TO_KEY =
      ThreadLocal.withInitial(() -> UnsafeProjection.create(KEY));

  private static final ThreadLocal<UnsafeProjection> TO_VALUE =
      ThreadLocal.withInitial(() -> UnsafeProjection.create(VALUE));

  public final Path folder;
  public final Map<String, String> settings = new LinkedHashMap<>();

  /** Hadoop's configuration of the session, without Hadoop's defaults. */
  public final Configuration hadoop = new Configuration(false);

  final StateStoreId id;

  /** The schemas that Spark gives to the store of a transformWithState; Avro needs them. */
  Option<StateSchemaProvider> schemas = Option.empty();

  private final List<CairnStateStoreProvider> providers = new ArrayList<>();
  private final Set<ProcessHandle> workersBefore = Set.copyOf(allWorkers());

  public StoreFixture() throws IOException {
    this("default");
  }

  StoreFixture(String storeName) throws IOException {
    folder = Files.createTempDirectory("cairn-test-");
    id = new StateStoreId(folder.resolve("state").toString(), 0, 0, storeName);
    settings.put(CAIRN + "python", PYTHON);
    settings.put(CAIRN + "localDir", LocalDir.PATH.toString());
    settings.put(CAIRN + "workers", "1");
    settings.put("spark.sql.streaming.stateStore.checkpointFormatVersion", "2");
  }

  /** Gives the fixture its own worker, by a set of settings that no other test has. */
  public StoreFixture withOwnWorker() {
    settings.put(CAIRN + "localDir", folder.resolve("local").toString());
    return this;
  }

  /**
   * Gives the fixture the smallest cache, which has only a part of the state, so that reads need
   * the engine.
   */
  StoreFixture withLeastCache() {
    settings.put(CAIRN + "cacheMemory", "1m");
    return this;
  }

  /** Makes the worker run these lines of Python first. REQUIRES: {@link #withOwnWorker}. */
  public void patchEngine(String lines) throws IOException {
    runWorkersBy(
        "#!"
            + PYTHON
            + "\n"
            + lines
            + "import runpy\nrunpy.run_module('cairn.engine', run_name='__main__')\n");
  }

  /** Makes this script the worker's Python. */
  public void runWorkersBy(String script) throws IOException {
    Path program = folder.resolve("python");
    Files.writeString(program, script);
    Files.setPosixFilePermissions(program, PosixFilePermissions.fromString("rwx------"));
    settings.put(CAIRN + "python", program.toString());
  }

  public StateStoreConf conf() {
    SQLConf sql = new SQLConf();
    settings.forEach(sql::setConfString);
    return new StateStoreConf(sql, Map$.MODULE$.empty());
  }

  public CairnStateStoreProvider provider() {
    return provider(KEY, VALUE, new NoPrefixKeyStateEncoderSpec(KEY), false, false);
  }

  CairnStateStoreProvider familyProvider() {
    return provider(KEY, VALUE, new NoPrefixKeyStateEncoderSpec(KEY), true, false);
  }

  CairnStateStoreProvider provider(
      StructType key, StructType value, KeyStateEncoderSpec spec, boolean families, boolean multi) {
    CairnStateStoreProvider provider = new CairnStateStoreProvider();
    Configuration ofRun = new Configuration(hadoop);
    ofRun.set("sql.streaming.runId", UUID.randomUUID().toString());
    provider.init(id, key, value, spec, families, conf(), ofRun, multi, schemas);
    providers.add(provider);
    return provider;
  }

  /** A provider of a store in another place. It gets this very object, not a copy of it. */
  CairnStateStoreProvider provider(String location, Configuration ofHadoop) {
    CairnStateStoreProvider provider = new CairnStateStoreProvider();
    NoPrefixKeyStateEncoderSpec spec = new NoPrefixKeyStateEncoderSpec(KEY);
    StateStoreId other = new StateStoreId(location, 0, 0, "default");
    provider.init(other, KEY, VALUE, spec, false, conf(), ofHadoop, false, schemas);
    providers.add(provider);
    return provider;
  }

  /** The session of a store that is open. */
  public static StoreSession session(StateStore store) {
    return ((CairnStateStore) store).session;
  }

  /** The store with the methods of the newest minor of Spark. */
  static MinorStore newest(StateStore store) {
    return (MinorStore) store;
  }

  /** Commits one version of puts and returns its checkpoint id. */
  public static Option<String> commit(
      CairnStateStoreProvider provider, long version, Option<String> checkpointId, long... keys) {
    StateStore store = provider.getStore(version, checkpointId, false, false);
    put(store, version + 1, keys);
    store.commit();
    return store.getStateStoreCheckpointInfo().stateStoreCkptId();
  }

  /** Puts keys with values that name a version. */
  public static void put(StateStore store, long version, long... keys) {
    for (long key : keys) {
      store.put(key(key), value("v" + key + "@" + version), "default");
    }
  }

  /** Values of some keys of a version. */
  public static List<String> read(
      CairnStateStoreProvider provider, long version, Option<String> checkpointId, long... keys) {
    StateStore store = provider.getStore(version, checkpointId, false, false);
    List<String> values = new ArrayList<>();
    for (long key : keys) {
      values.add(text(store.get(key(key), "default")));
    }
    store.abort();
    return values;
  }

  static UnsafeRow key(long key) {
    return TO_KEY.get().apply(new GenericInternalRow(new Object[] {key})).copy();
  }

  static UnsafeRow value(String text) {
    return TO_VALUE
        .get()
        .apply(new GenericInternalRow(new Object[] {UTF8String.fromString(text)}))
        .copy();
  }

  /** The value of a custom metric of a session. */
  static long metric(StateStore store, String name) {
    for (var entry : CollectionConverters.asJava(store.metrics().customMetrics()).entrySet()) {
      if (entry.getKey().name().equals(name)) {
        return (long) entry.getValue();
      }
    }
    throw new IllegalArgumentException(name);
  }

  static UnsafeRow row(StructType schema, Object... fields) {
    return UnsafeProjection.create(schema).apply(new GenericInternalRow(fields)).copy();
  }

  static String text(UnsafeRow row) {
    return row == null ? null : row.getString(0);
  }

  /** Key and value of each pair, in the order of the keys. */
  static Map<Long, String> all(StateStoreIterator<UnsafeRowPair> pairs) {
    Map<Long, String> rows = new java.util.TreeMap<>();
    while (pairs.hasNext()) {
      UnsafeRowPair pair = pairs.next();
      rows.put(pair.key().getLong(0), text(pair.value()));
    }
    pairs.close();
    return rows;
  }

  static StructType struct(org.apache.spark.sql.types.DataType... types) {
    StructType schema = new StructType();
    for (int index = 0; index < types.length; index++) {
      schema =
          schema.add(
              new StructField(
                  "c" + index, types[index], true, org.apache.spark.sql.types.Metadata.empty()));
    }
    return schema;
  }

  /** The workers started since this fixture was created. REQUIRES: {@link #withOwnWorker}. */
  public List<ProcessHandle> workers() {
    return allWorkers().stream().filter(worker -> !workersBefore.contains(worker)).toList();
  }

  /** The only worker of this fixture. */
  public ProcessHandle worker() {
    List<ProcessHandle> workers = workers();
    if (workers.size() != 1) {
      throw new IllegalStateException("one worker was expected, not " + workers);
    }
    return workers.get(0);
  }

  /** Sends a signal to the only worker of this fixture. */
  void signalWorker(String name) throws IOException, InterruptedException {
    String pid = Long.toString(worker().pid());
    new ProcessBuilder("kill", "-" + name, pid).start().waitFor();
    // One thread receives the signal; until it runs, the others go on.
    while (name.equals("STOP") && !isStopped(Path.of("/proc", pid, "task"))) {
      Thread.sleep(1);
    }
  }

  private static boolean isStopped(Path threads) throws IOException {
    try (Stream<Path> each = Files.list(threads)) {
      for (Path thread : each.toList()) {
        String stat = Files.readString(thread.resolve("stat"));
        if (stat.charAt(stat.lastIndexOf(')') + 2) != 'T') {
          return false;
        }
      }
      return true;
    }
  }

  /** Kills the workers of this fixture and waits for their end. */
  void killWorkers() throws Exception {
    List<ProcessHandle> workers = workers();
    if (workers.isEmpty()) {
      throw new IllegalStateException("no worker to kill");
    }
    for (ProcessHandle worker : workers) {
      worker.destroyForcibly();
      worker.onExit().get(10, TimeUnit.SECONDS);
    }
  }

  /** The workers of this JVM, started by any test. */
  private static List<ProcessHandle> allWorkers() {
    return ProcessHandle.current()
        .children()
        .filter(
            child ->
                child
                    .info()
                    .arguments()
                    .map(arguments -> List.of(arguments).contains("cairn.engine"))
                    .orElse(false))
        .toList();
  }

  /** The messages of an error and its causes. */
  public static String chain(Throwable error) {
    StringBuilder text = new StringBuilder();
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      text.append(cause.getMessage()).append(" <- ");
    }
    return text.toString();
  }

  /** Names of the objects under the store's folder. */
  List<String> objects(String part) throws IOException {
    Path root = folder.resolve("state/0/0").resolve(part);
    if (!Files.exists(root)) {
      return List.of();
    }
    try (Stream<Path> files = Files.walk(root)) {
      return files
          .filter(Files::isRegularFile)
          .map(file -> root.relativize(file).toString())
          .sorted()
          .toList();
    }
  }

  @Override
  public void close() {
    providers.forEach(CairnStateStoreProvider::close);
    delete(folder);
  }

  /** Deletes a folder in which a worker may delete files at the same time. */
  private static void delete(Path folder) {
    FileUtil.fullyDelete(folder.toFile());
  }

  /** One local directory for all tests of the JVM, because each set of settings starts a worker. */
  private static final class LocalDir {
    static final Path PATH = create();

    private static Path create() {
      try {
        Path path = Files.createTempDirectory("cairn-test-local-");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> delete(path)));
        return path;
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}
