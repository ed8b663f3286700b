import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Iceberg's own REST catalog over its catalog in a database: FOLDER PORT. On loopback alone. */
public class IcebergCatalog {
    public static void main(String[] given) throws Exception {
        Path folder = Path.of(given[0]);
        JdbcCatalog catalog = new JdbcCatalog();
        catalog.setConf(new Configuration());
        catalog.initialize("tidemark", Map.of(
                "uri", "jdbc:sqlite:" + folder.resolve("catalog.db"),
                "warehouse", folder.resolve("warehouse").toUri().toString(),
                "jdbc.schema-version", "V1"));
        ServletContextHandler handler = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
        handler.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(given[1])));
        server.setHandler(handler);
        server.start();
        server.join();
    }
}
