import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.FileInputStream;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.BufferedMutatorParams;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;

/**
 * Put the rows of a file into a table with BufferedMutators, and print the seconds that it took.
 *
 * <p>Arguments: ZooKeeper's port, table, file, threads. The file holds, for each row, its key and then its cells, as many as
 * the first number of the file says: qualifier and value, each with its length before it. Reading it is not timed.
 */
public class WriteCells {
  public static void main(String[] arguments) throws Exception {
    Configuration settings = HBaseConfiguration.create();
    settings.set("hbase.zookeeper.quorum", "127.0.0.1");
    settings.set("hbase.zookeeper.property.clientPort", arguments[0]);
    TableName table = TableName.valueOf(arguments[1]);
    List<List<byte[]>> rows = read(arguments[2]);
    int threads = Integer.parseInt(arguments[3]);
    try (Connection connection = ConnectionFactory.createConnection(settings)) {
      // Where the regions are is known before the clock starts.
      connection.getRegionLocator(table).getAllRegionLocations();
      long began = System.nanoTime();
      List<Thread> running = new ArrayList<>();
      List<Throwable> failed = new ArrayList<>();
      for (int part = 0; part < threads; part++) {
        int first = part;
        Thread thread = new Thread(() -> write(connection, table, rows, first, threads));
        thread.setUncaughtExceptionHandler((where, problem) -> failed.add(problem));
        thread.start();
        running.add(thread);
      }
      for (Thread thread : running) thread.join();
      if (!failed.isEmpty()) throw new RuntimeException(failed.get(0));
      System.out.println((System.nanoTime() - began) / 1e9);
    }
  }

  private static void write(Connection connection, TableName table, List<List<byte[]>> rows, int first, int step) {
    BufferedMutatorParams params = new BufferedMutatorParams(table).writeBufferSize(8 << 20);
    try (BufferedMutator mutator = connection.getBufferedMutator(params)) {
      for (int number = first; number < rows.size(); number += step) {
        List<byte[]> row = rows.get(number);
        Put put = new Put(row.get(0));
        for (int cell = 1; cell < row.size(); cell += 2) {
          put.addColumn(new byte[] {'d'}, row.get(cell), 1L, row.get(cell + 1));
        }
        mutator.mutate(put);
      }
    } catch (java.io.IOException problem) {
      throw new RuntimeException(problem);
    }
  }

  private static List<List<byte[]>> read(String file) throws Exception {
    List<List<byte[]>> rows = new ArrayList<>();
    try (DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(file), 1 << 20))) {
      int cells = in.readInt();
      while (true) {
        List<byte[]> row = new ArrayList<>(1 + 2 * cells);
        for (int part = 0; part < 1 + 2 * cells; part++) {
          byte[] bytes;
          try {
            bytes = new byte[in.readInt()];
          } catch (EOFException end) {
            if (part == 0) return rows;
            throw end;
          }
          in.readFully(bytes);
          row.add(bytes);
        }
        rows.add(row);
      }
    }
  }
}
