package io.cairn.spark;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.minor.SparkMinor;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
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

  /** Each is the first of Cairn's code that Spark calls: of a session, a store, a query's plan. */
  @ParameterizedTest
  @ValueSource(
      strings = {
        "io.cairn.spark.CairnExtensions.apply",
        "io.cairn.spark.CairnStateStoreProvider.init",
        "io.cairn.spark.CairnStateStoreProvider.supportedCustomMetrics"
      })
  void theEntryPointsRefuseAnotherMinor(String entryPoint, @TempDir Path folder) throws Exception {
    Path source = folder.resolve("package$.java");
    Files.writeString(
        source,
        """
        package org.apache.spark;
        public class package$ {
          public static final package$ MODULE$ = new package$();
          public String SPARK_VERSION() { return "3.5.4"; }
        }
        """);
    assertEquals(
        0,
        ToolProvider.getSystemJavaCompiler()
            .run(null, null, null, "-d", folder.toString(), source.toString()));
    ClassLoader spark = new BesideAnotherSpark(folder);
    String name = entryPoint.substring(entryPoint.lastIndexOf('.') + 1);
    Class<?> type = spark.loadClass(entryPoint.substring(0, entryPoint.lastIndexOf('.')));
    Object instance = type.getConstructor().newInstance();
    Method method =
        Arrays.stream(type.getMethods())
            .filter(one -> one.getName().equals(name) && !one.isBridge())
            .findFirst()
            .orElseThrow();
    Object[] arguments =
        Arrays.stream(method.getParameterTypes())
            .map(parameter -> parameter == boolean.class ? false : null)
            .toArray();

    Throwable error =
        assertThrows(InvocationTargetException.class, () -> method.invoke(instance, arguments))
            .getCause();

    assertTrue(error.getMessage().contains("[CAIRN_SPARK_VERSION]"), error::toString);
    assertTrue(error.getMessage().contains("this is Spark 3.5.4"), error::toString);
  }

  /** Loads Cairn's classes anew, and Spark's version from a folder; all others are shared. */
  private static final class BesideAnotherSpark extends ClassLoader {
    private final Path folder;

    BesideAnotherSpark(Path folder) {
      super(SparkVersionCheckTest.class.getClassLoader());
      this.folder = folder;
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
      synchronized (getClassLoadingLock(name)) {
        Class<?> loaded = findLoadedClass(name);
        if (loaded != null) {
          return loaded;
        }
        String file = name.replace('.', '/') + ".class";
        try {
          if (name.equals("org.apache.spark.package$")) {
            return define(name, Files.readAllBytes(folder.resolve(file)));
          }
          if (name.startsWith("io.cairn.")) {
            try (InputStream in = getParent().getResourceAsStream(file)) {
              return define(name, in.readAllBytes());
            }
          }
        } catch (IOException e) {
          throw new ClassNotFoundException(name, e);
        }
        return super.loadClass(name, resolve);
      }
    }

    private Class<?> define(String name, byte[] bytes) {
      return defineClass(name, bytes, 0, bytes.length);
    }
  }
}
