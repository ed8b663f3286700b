import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;

/** Flushes tables and runs a major compaction on them, as HBase does by itself sooner or later. */
public final class FlushAndCompact {
  public static void main(String[] tables) throws Exception {
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
        Admin admin = connection.getAdmin()) {
      for (String name : tables) {
        TableName table = TableName.valueOf(name);
        admin.flush(table);
        long before = admin.getLastMajorCompactionTimestamp(table);
        admin.majorCompact(table);
        for (int tries = 0; tries < 600; tries++) {
          boolean idle = admin.getCompactionState(table) == CompactionState.NONE;
          if (idle && admin.getLastMajorCompactionTimestamp(table) > before) {
            break;
          }
          Thread.sleep(100);
        }
      }
    }
  }
}
