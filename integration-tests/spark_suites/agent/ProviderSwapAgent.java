package io.cairn.suites;

import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.takesArgument;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.instrument.Instrumentation;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;

/**
 * Java agent that makes Spark's own suites build one provider where they name another, and counts
 * what was built.
 *
 * <p>Suites that name Spark's RocksDB provider would judge that provider whatever the session
 * default is. The agent rewrites the name on its way into {@code
 * StateStoreProvider.create(String)}; the session conf keeps the name that the suite wrote. It
 * counts two things apart: objects constructed ({@code create}; Spark makes some on the driver only
 * to ask for metric names) and stores opened ({@code createAndInit}).
 *
 * <p>Arguments: {@code report=<file>;target=<class>;names=<class>|<class>}. Without a target it
 * only counts. The report is written when the JVM ends, one {@code <created|opened> <class>
 * <count>} a line.
 */
public final class ProviderSwapAgent {
  private static final String FACTORY =
      "org.apache.spark.sql.execution.streaming.state.StateStoreProvider$";

  private static volatile String target = "";
  private static volatile Set<String> names = Set.of();
  private static final Map<String, Long> COUNTS = new TreeMap<>();

  private ProviderSwapAgent() {}

  /** Installs the agent; called by the JVM before {@code main}. */
  public static void premain(String arguments, Instrumentation instrumentation) {
    Map<String, String> options = parse(arguments);
    target = options.getOrDefault("target", "");
    names = Set.of(options.getOrDefault("names", "").split("\\|"));
    Path report = Path.of(options.get("report"));
    Runtime.getRuntime().addShutdownHook(new Thread(() -> write(report), "provider-swap-report"));

    new AgentBuilder.Default()
        .disableClassFormatChanges()
        .type(named(FACTORY))
        .transform(
            (builder, type, loader, module, domain) ->
                builder
                    .visit(
                        Advice.to(OnCreate.class)
                            .on(named("create").and(takesArgument(0, String.class))))
                    .visit(Advice.to(OnOpen.class).on(named("createAndInit"))))
        .installOn(instrumentation);
  }

  /** The class to build where Spark asked for {@code name}. Called from Spark's code. */
  public static String replace(String name) {
    return !target.isEmpty() && names.contains(name) ? target : name;
  }

  /**
   * Adds one to the count of {@code what} for the class of {@code provider}. Called from Spark's
   * code.
   */
  public static void count(String what, Object provider) {
    if (provider == null) {
      return;
    }
    synchronized (COUNTS) {
      COUNTS.merge(what + " " + provider.getClass().getName(), 1L, Long::sum);
    }
  }

  private static Map<String, String> parse(String arguments) {
    Map<String, String> options = new TreeMap<>();
    for (String part : arguments.split(";")) {
      String[] pair = part.split("=", 2);
      options.put(pair[0], pair[1]);
    }
    return options;
  }

  private static void write(Path report) {
    List<String> lines = new ArrayList<>();
    synchronized (COUNTS) {
      COUNTS.forEach((what, count) -> lines.add(what + " " + count));
    }
    try {
      Files.write(report, lines);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Inlined into {@code create}: public members only, for they run inside Spark's class. */
  public static final class OnCreate {
    private OnCreate() {}

    @Advice.OnMethodEnter
    static void enter(@Advice.Argument(value = 0, readOnly = false) String name) {
      name = ProviderSwapAgent.replace(name);
    }

    @Advice.OnMethodExit
    static void exit(@Advice.Return Object provider) {
      ProviderSwapAgent.count("created", provider);
    }
  }

  /** Inlined into {@code createAndInit}. */
  public static final class OnOpen {
    private OnOpen() {}

    @Advice.OnMethodExit
    static void exit(@Advice.Return Object provider) {
      ProviderSwapAgent.count("opened", provider);
    }
  }
}
