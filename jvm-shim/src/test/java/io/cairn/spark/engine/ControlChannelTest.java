package io.cairn.spark.engine;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;

import io.cairn.spark.errors.CairnException;
import io.cairn.spark.protocol.Json;
import java.net.InetAddress;
import java.net.ServerSocket;
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
          ChildJvm.start(
              "-Djava.net.preferIPv6Addresses=true",
              OneCall.class,
              String.valueOf(worker.getLocalPort()));
      try {
        assertDoesNotThrow(worker::accept).close(); // times out if nobody connects
      } finally {
        process.destroyForcibly().waitFor();
      }
    }
  }
}
