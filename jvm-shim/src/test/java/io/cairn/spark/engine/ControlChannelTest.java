package io.cairn.spark.engine;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.protocol.Json;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

class ControlChannelTest {
  private static final int LIMIT_MS = 20_000;

  /** The program of a child JVM: makes one call. */
  static final class OneCall {
    public static void main(String[] arguments) {
      ControlChannel.Limits limits = new ControlChannel.Limits(LIMIT_MS, LIMIT_MS);
      int port = Integer.parseInt(arguments[0]);
      try (ControlChannel channel = new ControlChannel("worker-0", port, "t", limits, () -> {})) {
        channel.call("ping", Json.object(), "store");
      } catch (CairnException e) {
        System.out.println(e.getMessage());
      }
    }
  }

  /** In a cluster with IPv6, Java's loopback address is not the one on which workers listen. */
  @Test
  void aJvmThatPrefersIpv6ReachesItsWorkers() throws Exception {
    try (ServerSocket worker = new ServerSocket(0, 5, InetAddress.getByName("127.0.0.1"))) {
      worker.setSoTimeout(LIMIT_MS);
      Process process =
          new ProcessBuilder(
                  Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                  "-Djava.net.preferIPv6Addresses=true",
                  "-cp",
                  System.getProperty("java.class.path"),
                  OneCall.class.getName(),
                  String.valueOf(worker.getLocalPort()))
              .redirectErrorStream(true)
              .start();
      try {
        worker.accept().close();
        assertTrue(process.isAlive() || process.exitValue() == 0);
      } finally {
        process.destroyForcibly().waitFor();
      }
    }
  }
}
