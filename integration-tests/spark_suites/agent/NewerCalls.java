package io.cairn.suites;

import static net.bytebuddy.matcher.ElementMatchers.any;
import static net.bytebuddy.matcher.ElementMatchers.nameMatches;
import static net.bytebuddy.matcher.ElementMatchers.none;

import java.lang.instrument.Instrumentation;
import java.util.Map;
import net.bytebuddy.ByteBuddy;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.AsmVisitorWrapper;
import net.bytebuddy.asm.AsmVisitorWrapper.ForDeclaredMethods.MethodVisitorWrapper;
import net.bytebuddy.jar.asm.MethodVisitor;
import net.bytebuddy.jar.asm.Opcodes;
import net.bytebuddy.jar.asm.Type;
import net.bytebuddy.utility.OpenedClassReader;

/**
 * Adapts calls in the test classes of Spark 4.2 to methods that have other parameters in 4.3.
 *
 * <p>Each new parameter comes after the older ones and has a default, which Scala keeps as a method
 * of the companion object. The call gets it, as if the test had been compiled with Spark 4.3. One
 * method has lost its last parameter, of which the tests give the default. Without all this the
 * call fails with NoSuchMethodError, whatever the provider under test.
 */
final class NewerCalls {
  private static final String STREAMING = "org/apache/spark/sql/execution/streaming/";
  private static final String STATEFUL = STREAMING + "operators/stateful/";
  private static final String CONSTRUCTOR = "<init>";

  /**
   * The types of the new parameters, by owner, method and its number of parameters in Spark 4.2.
   */
  private static final Map<String, String> NEW_PARAMETERS =
      Map.of(
          STATEFUL + "transformwithstate/statefulprocessor/StatefulProcessorHandleImpl.<init>/8",
          "Lscala/Option;",
          STATEFUL + "join/SymmetricHashJoinStateManager$.apply/15",
          "Z",
          STREAMING + "state/StateStoreCustomSizeMetric.<init>/2",
          "Z",
          STREAMING + "checkpointing/AsyncOffsetSeqLog.<init>/5",
          "Lorg/apache/spark/util/ErrorNotifier;",
          "org/apache/spark/sql/streaming/StateOperatorProgress.<init>/12",
          "Lscala/collection/immutable/Set;",
          "org/apache/spark/sql/execution/python/UserDefinedPythonFunction.<init>/5",
          "Ljava/util/List;Ljava/util/List;");

  private static final String STORES = STREAMING + "state/StateStore$";
  private static final String SHORTER = "removeFromLoadedProvidersAndClose";
  private static final String LOST_PARAMETER = "Lscala/Option;)";

  private NewerCalls() {}

  static void installOn(Instrumentation instrumentation) {
    // Without ignore(none()) the bodies of Scala's lambdas, which are the tests, stay as they are.
    new AgentBuilder.Default(new ByteBuddy().ignore(none()))
        .with(AgentBuilder.Listener.StreamWriting.toSystemError().withErrorsOnly())
        .disableClassFormatChanges()
        .type(nameMatches(ProviderSwapAgent.CLASSES_OF_SUITES))
        .transform(
            (builder, type, loader, module, domain) ->
                builder.visit(
                    new AsmVisitorWrapper.ForDeclaredMethods().invokable(any(), completedCalls())))
        .installOn(instrumentation);
  }

  private static MethodVisitorWrapper completedCalls() {
    return (type, method, visitor, context, pool, writerFlags, readerFlags) ->
        new MethodVisitor(OpenedClassReader.ASM_API, visitor) {
          @Override
          public void visitMethodInsn(
              int opcode, String owner, String name, String descriptor, boolean isInterface) {
            if (owner.equals(STORES) && name.equals(SHORTER + "$default$2")) {
              super.visitInsn(Opcodes.POP); // the companion object
              super.visitInsn(Opcodes.ACONST_NULL);
              return;
            }
            if (owner.equals(STORES) && name.equals(SHORTER)) {
              super.visitInsn(Opcodes.POP);
              String shorter = descriptor.replace(LOST_PARAMETER, ")");
              super.visitMethodInsn(opcode, owner, name, shorter, isInterface);
              return;
            }
            int count = Type.getArgumentTypes(descriptor).length;
            String parameters = NEW_PARAMETERS.getOrDefault(owner + "." + name + "/" + count, "");
            for (Type parameter : Type.getArgumentTypes("(" + parameters + ")V")) {
              pushDefault(owner, name, ++count, parameter.getDescriptor());
            }
            super.visitMethodInsn(
                opcode, owner, name, descriptor.replace(")", parameters + ")"), isInterface);
          }

          private void pushDefault(String owner, String name, int number, String parameter) {
            String companion = owner.endsWith("$") ? owner : owner + "$";
            String prefix = name.equals(CONSTRUCTOR) ? "$lessinit$greater" : name;
            super.visitFieldInsn(Opcodes.GETSTATIC, companion, "MODULE$", "L" + companion + ";");
            super.visitMethodInsn(
                Opcodes.INVOKEVIRTUAL,
                companion,
                prefix + "$default$" + number,
                "()" + parameter,
                false);
          }

          @Override
          public void visitMaxs(int stack, int locals) {
            super.visitMaxs(stack + 2, locals);
          }
        };
  }
}
