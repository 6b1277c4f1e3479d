package io.cairn.suites;

import static net.bytebuddy.matcher.ElementMatchers.any;
import static net.bytebuddy.matcher.ElementMatchers.isConstructor;
import static net.bytebuddy.matcher.ElementMatchers.nameMatches;
import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.namedOneOf;
import static net.bytebuddy.matcher.ElementMatchers.takesArgument;
import static net.bytebuddy.matcher.ElementMatchers.takesNoArguments;

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
import net.bytebuddy.asm.AsmVisitorWrapper;
import net.bytebuddy.asm.AsmVisitorWrapper.ForDeclaredMethods.MethodVisitorWrapper;
import net.bytebuddy.jar.asm.MethodVisitor;
import net.bytebuddy.jar.asm.Opcodes;
import net.bytebuddy.utility.OpenedClassReader;

/**
 * Java agent that replaces the provider class in Spark's own suites and counts the providers.
 *
 * <p>Suites that name Spark's RocksDB provider would test that provider whatever the default is.
 * The agent replaces the argument of {@code StateStoreProvider.create(String)}; the session's
 * settings keep the original name. In classes of suites it also replaces {@code new} of this
 * provider: the target must be a subclass of it. It counts constructed objects ({@code create};
 * Spark creates some on the driver for their metric names only) and opened stores ({@code init}),
 * and Cairn's checkpoint file managers ({@code managed}).
 *
 * <p>Arguments: {@code report=<file>;newer=<true|false>;target=<class>;names=<class>|<class>}.
 * Without a target it only counts. {@code newer}: Spark is newer than the test classes. The report
 * is written when the JVM ends, one line {@code <suite> <created|opened|managed> <class> <count>}
 * per suite and class; {@code %p} in its name is the id of the process.
 */
public final class ProviderSwapAgent {
  private static final String FACTORY =
      "org.apache.spark.sql.execution.streaming.state.StateStoreProvider$";
  private static final String STATE = "org.apache.spark.sql.execution.streaming.state.";
  private static final Set<String> PROVIDERS =
      Set.of(STATE + "RocksDBStateStoreProvider", STATE + "HDFSBackedStateStoreProvider");
  private static final String CONSTRUCTED = (STATE + "RocksDBStateStoreProvider").replace('.', '/');
  static final String CLASSES_OF_SUITES =
      "org\\.apache\\.spark\\.sql\\..*(Suite|Test|CkptIdCollecting).*";
  private static final Set<String> FILE_MANAGERS =
      Set.of(
          "io.cairn.spark.CairnCheckpointFileManager", "io.cairn.spark.metadata.S3CheckpointFiles");

  private static volatile String target = "";
  private static volatile Set<String> names = Set.of();
  private static volatile String suite = "none";
  private static final Map<String, Long> COUNTS = new TreeMap<>();

  private ProviderSwapAgent() {}

  /** Installs the agent; called by the JVM before {@code main}. */
  public static void premain(String arguments, Instrumentation instrumentation) {
    Map<String, String> options = parse(arguments);
    target = options.getOrDefault("target", "");
    names = Set.of(options.getOrDefault("names", "").split("\\|"));
    String process = String.valueOf(ProcessHandle.current().pid());
    Path report = Path.of(options.get("report").replace("%p", process));
    Runtime.getRuntime().addShutdownHook(new Thread(() -> write(report), "provider-swap-report"));

    new AgentBuilder.Default()
        .disableClassFormatChanges()
        .type(named(FACTORY))
        .transform(
            (builder, type, loader, module, domain) ->
                builder.visit(
                    Advice.to(OnCreate.class)
                        .on(named("create").and(takesArgument(0, String.class)))))
        .type(namedOneOf(PROVIDERS.toArray(String[]::new)).or(named(target)))
        .transform(
            (builder, type, loader, module, domain) ->
                builder.visit(Advice.to(OnOpen.class).on(named("init"))))
        .type(namedOneOf(FILE_MANAGERS.toArray(String[]::new)))
        .transform(
            (builder, type, loader, module, domain) ->
                builder.visit(Advice.to(OnManager.class).on(isConstructor())))
        .type(named("org.scalatest.tools.SuiteRunner"))
        .transform(
            (builder, type, loader, module, domain) ->
                builder.visit(Advice.to(OnSuite.class).on(named("run").and(takesNoArguments()))))
        .installOn(instrumentation);
    boolean isNewer = Boolean.parseBoolean(options.get("newer"));
    if (isNewer) {
      NewerMembers.installOn(instrumentation);
      NewerCalls.installOn(instrumentation);
    }
    TestConduct.installOn(instrumentation);
    boolean isSwapped = !target.isEmpty() && names.contains(CONSTRUCTED.replace('/', '.'));
    if (isNewer) {
      SkippedMaintenance.installOn(
          instrumentation, CONSTRUCTED, isSwapped ? target.replace('.', '/') : CONSTRUCTED);
    }
    if (isSwapped) {
      new AgentBuilder.Default()
          .disableClassFormatChanges()
          .type(nameMatches(CLASSES_OF_SUITES))
          .transform(
              (builder, type, loader, module, domain) ->
                  builder.visit(
                      new AsmVisitorWrapper.ForDeclaredMethods()
                          .invokable(any(), constructedClass())))
          .installOn(instrumentation);
    }
  }

  /** Replaces the class in {@code new}; a call of a super constructor stays as it is. */
  private static MethodVisitorWrapper constructedClass() {
    String replacement = target.replace('.', '/');
    return (type, method, visitor, context, pool, writerFlags, readerFlags) ->
        new MethodVisitor(OpenedClassReader.ASM_API, visitor) {
          private int replaced;

          @Override
          public void visitTypeInsn(int opcode, String name) {
            boolean isReplaced = opcode == Opcodes.NEW && name.equals(CONSTRUCTED);
            replaced += isReplaced ? 1 : 0;
            super.visitTypeInsn(opcode, isReplaced ? replacement : name);
          }

          @Override
          public void visitMethodInsn(
              int opcode, String owner, String name, String descriptor, boolean isInterface) {
            boolean isReplaced = replaced > 0 && name.equals("<init>") && owner.equals(CONSTRUCTED);
            replaced -= isReplaced ? 1 : 0;
            super.visitMethodInsn(
                opcode, isReplaced ? replacement : owner, name, descriptor, isInterface);
          }
        };
  }

  /** Returns the class to use instead of {@code name}. Called from Spark's code. */
  public static String replace(String name) {
    return !target.isEmpty() && names.contains(name) ? target : name;
  }

  /** Counts {@code what} for the class of {@code provider}. Called from Spark's code. */
  public static void count(String what, Object provider) {
    if (provider == null) {
      return;
    }
    Class<?> type = provider.getClass();
    String name =
        (type.getName().matches(SkippedMaintenance.PROVIDERS) ? type.getSuperclass() : type)
            .getName();
    synchronized (COUNTS) {
      COUNTS.merge(suite + " " + what + " " + name, 1L, Long::sum);
    }
  }

  /** Counts for this suite from now on. Called from scalatest's code. */
  public static void begin(Object nextSuite) {
    suite = nextSuite.getClass().getName();
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

  /** Inlined into {@code create}: uses public members only, as it runs in Spark's class. */
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

  /** Inlined into scalatest's run of one suite. */
  public static final class OnSuite {
    private OnSuite() {}

    @Advice.OnMethodEnter
    static void enter(@Advice.FieldValue("suite") Object suite) {
      ProviderSwapAgent.begin(suite);
    }
  }

  /** Inlined into {@code init} of providers. */
  public static final class OnOpen {
    private OnOpen() {}

    @Advice.OnMethodExit
    static void exit(@Advice.This Object provider) {
      ProviderSwapAgent.count("opened", provider);
    }
  }

  /** Inlined into the constructors of file managers. */
  public static final class OnManager {
    private OnManager() {}

    @Advice.OnMethodExit
    static void exit(@Advice.This Object manager) {
      ProviderSwapAgent.count("managed", manager);
    }
  }
}
