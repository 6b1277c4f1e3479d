import java.io.File;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;

/**
 * A NameNode and a DataNode in this process, on loopback, with their data in a folder: {@code
 * MiniHdfs <folder>}. Prints {@code port <number>} when it serves; ends with its standard input.
 */
public final class MiniHdfs {
  private MiniHdfs() {}

  public static void main(String[] arguments) {
    try {
      start(Path.of(arguments[0]));
      while (System.in.read() >= 0) {
        // Only the end matters.
      }
    } catch (Throwable e) {
      e.printStackTrace();
      Runtime.getRuntime().halt(1);
    }
    // The servers have threads that do not end.
    Runtime.getRuntime().halt(0);
  }

  private static void start(Path folder) throws Exception {
    DefaultMetricsSystem.setMiniClusterMode(true);
    Configuration conf = new Configuration();
    conf.set("fs.defaultFS", "hdfs://127.0.0.1:0");
    for (String address :
        new String[] {"namenode.http", "datanode", "datanode.http", "datanode.ipc"}) {
      conf.set(
          "dfs." + address + (address.startsWith("name") ? "-" : ".") + "address", "127.0.0.1:0");
    }
    conf.set("dfs.namenode.rpc-address", "127.0.0.1:0");
    conf.set("dfs.namenode.name.dir", folder.resolve("name").toUri().toString());
    conf.set("dfs.datanode.data.dir", folder.resolve("data").toUri().toString());
    conf.set("dfs.replication", "1");
    conf.setBoolean("dfs.permissions.enabled", true);
    conf.setLong("dfs.namenode.fs-limits.min-block-size", 0);
    // Data that is lost with the machine is no loss to a test.
    conf.setBoolean("dfs.datanode.synconclose", false);
    conf.setBoolean("dfs.namenode.edits.noeditlogchannelflush", true);
    // A DataNode that another process's loopback name cannot be resolved for is accepted.
    conf.setBoolean("dfs.namenode.datanode.registration.ip-hostname-check", false);
    new File(folder.toFile(), "data").mkdirs();
    NameNode.format(conf);
    NameNode names = new NameNode(conf);
    conf.set("fs.defaultFS", "hdfs://127.0.0.1:" + names.getNameNodeAddress().getPort());
    conf.set("dfs.namenode.rpc-address", "127.0.0.1:" + names.getNameNodeAddress().getPort());
    DataNode data = DataNode.createDataNode(null, conf);
    while (!data.isDatanodeFullyStarted()) {
      Thread.sleep(50);
    }
    while (names.isInSafeMode()) {
      Thread.sleep(50);
    }
    System.out.println("port " + names.getNameNodeAddress().getPort());
    System.out.flush();
  }
}
