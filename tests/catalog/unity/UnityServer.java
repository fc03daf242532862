import io.unitycatalog.server.UnityCatalogServer;
import io.unitycatalog.server.utils.ServerProperties;
import java.util.Properties;

/**
 * Unity Catalog's own server, with nothing kept. Arguments: the port, and the folder of its managed
 * tables. It says `> up` when it takes requests, and ends with its standard input.
 */
public final class UnityServer {
  private UnityServer() {}

  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    properties.setProperty("server.env", "test");
    properties.setProperty("server.managed-table.enabled", "true");
    properties.setProperty("storage-root.tables", arguments[1]);
    UnityCatalogServer server =
        UnityCatalogServer.builder()
            .port(Integer.parseInt(arguments[0]))
            .serverProperties(new ServerProperties(properties))
            .build();
    server.start();
    System.out.println("> up");
    while (System.in.read() >= 0) {}
    System.exit(0);
  }
}
