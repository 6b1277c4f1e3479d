package io.cairn.suites;

import static net.bytebuddy.matcher.ElementMatchers.nameMatches;

import java.lang.instrument.Instrumentation;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.AsmVisitorWrapper;
import net.bytebuddy.description.field.FieldDescription;
import net.bytebuddy.description.field.FieldList;
import net.bytebuddy.description.method.MethodList;
import net.bytebuddy.description.type.TypeDescription;
import net.bytebuddy.implementation.Implementation;
import net.bytebuddy.jar.asm.ClassVisitor;
import net.bytebuddy.jar.asm.MethodVisitor;
import net.bytebuddy.jar.asm.Opcodes;
import net.bytebuddy.pool.TypePool;
import net.bytebuddy.utility.OpenedClassReader;

/**
 * Lets the providers of Spark's tests that skip maintenance, or fail in it, do so under Spark 4.3
 * and Cairn.
 *
 * <p>Those that skip it extend Spark's providers, and override {@code doMaintenance}, which uploads
 * snapshots in Spark 4.2. Spark 4.3 calls {@code doSnapshotMaintenance} instead, and such a
 * provider would skip nothing, whatever the provider under test: the override gets the new name.
 * What extends Spark's provider extends the provider under test instead.
 */
final class SkippedMaintenance implements AsmVisitorWrapper {
  static final String PROVIDERS = ".*SkipMaintenanceOnCertainPartitionsProvider";
  private static final String FAILING =
      ".*(FakeStateStoreProviderWithMaintenanceError|MaintenanceErrorOnCertainPartitionsProvider)";
  private static final String OLDER = "doMaintenance";
  private static final String NEWER = "doSnapshotMaintenance";

  private final String replaced;
  private final String replacement;

  /** Classes that extend {@code replaced} extend {@code replacement}; both are internal names. */
  private SkippedMaintenance(String replaced, String replacement) {
    this.replaced = replaced;
    this.replacement = replacement;
  }

  static void installOn(Instrumentation instrumentation, String replaced, String replacement) {
    new AgentBuilder.Default()
        .with(AgentBuilder.Listener.StreamWriting.toSystemError().withErrorsOnly())
        .disableClassFormatChanges()
        .type(nameMatches(PROVIDERS).or(nameMatches(FAILING)))
        .transform(
            (builder, type, loader, module, domain) ->
                builder.visit(new SkippedMaintenance(replaced, replacement)))
        .installOn(instrumentation);
  }

  @Override
  public int mergeWriter(int flags) {
    return flags;
  }

  @Override
  public int mergeReader(int flags) {
    return flags;
  }

  @Override
  public ClassVisitor wrap(
      TypeDescription type,
      ClassVisitor visitor,
      Implementation.Context context,
      TypePool pool,
      FieldList<FieldDescription.InDefinedShape> fields,
      MethodList<?> methods,
      int writerFlags,
      int readerFlags) {
    return new ClassVisitor(OpenedClassReader.ASM_API, visitor) {
      @Override
      public void visit(
          int version,
          int access,
          String name,
          String signature,
          String superName,
          String[] interfaces) {
        super.visit(version, access, name, null, provider(superName), interfaces);
      }

      @Override
      public MethodVisitor visitMethod(
          int access, String name, String descriptor, String signature, String[] exceptions) {
        return new MethodVisitor(
            OpenedClassReader.ASM_API,
            super.visitMethod(access, newer(name), descriptor, signature, exceptions)) {
          @Override
          public void visitMethodInsn(
              int opcode, String owner, String called, String descriptor, boolean isInterface) {
            boolean isOfSuper = opcode == Opcodes.INVOKESPECIAL;
            super.visitMethodInsn(
                opcode,
                isOfSuper ? provider(owner) : owner,
                isOfSuper ? newer(called) : called,
                descriptor,
                isInterface);
          }
        };
      }
    };
  }

  private String provider(String name) {
    return name.equals(replaced) ? replacement : name;
  }

  private static String newer(String method) {
    return method.equals(OLDER) ? NEWER : method;
  }
}
