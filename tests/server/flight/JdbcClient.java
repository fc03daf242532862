import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;

/** What a tool does by JDBC; each line that it prints is a fact that the test knows. */
public final class JdbcClient {
  public static void main(String[] arguments) throws Exception {
    String url = arguments[0];
    try (Connection connection = DriverManager.getConnection(url)) {
      statements(connection);
      parameters(connection);
      metadata(connection);
      errors(connection);
    }
    Connection session = DriverManager.getConnection(url + "&catalog=" + arguments[1]);
    transactions(session);
    try {
      session.close();
    } catch (SQLException twice) {
      // Release 18.3 ends its session a second time, on the connection that it has closed.
      if (!chain(twice).contains("Channel shutdown invoked")) throw twice;
    }
    try (Connection connection = DriverManager.getConnection(url + "&txlake-database=more")) {
      print("database", rows(connection, "SELECT id FROM u"));
    }
    try (Connection connection =
        DriverManager.getConnection(arguments[2], "anybody", arguments[3])) {
      print("password", rows(connection, "SELECT id FROM t WHERE id = 1"));
    }
  }

  private static void statements(Connection connection) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.execute("CREATE DATABASE more");
      statement.execute("CREATE TABLE more.u (id INT)");
      statement.execute("INSERT INTO more.u VALUES (7)");
      statement.execute("CREATE TABLE t (id INT, name STRING, price DECIMAL(8,2), day DATE)");
      print("inserted", statement.executeUpdate(
          "INSERT INTO t VALUES (1, 'a', 1.5, DATE'2026-11-28'), (2, 'b', NULL, NULL)"));
      try (ResultSet found = statement.executeQuery("SELECT * FROM t WHERE id = 1")) {
        ResultSetMetaData columns = found.getMetaData();
        for (int place = 1; place <= columns.getColumnCount(); place++) {
          print("column", columns.getColumnLabel(place) + " " + columns.getColumnTypeName(place));
        }
        found.next();
        print("row", found.getInt(1) + " " + found.getString("name") + " "
            + found.getBigDecimal(3) + " " + found.getDate(4).toLocalDate());
      }
      print("tables", rows(connection, "SHOW TABLES"));
    }
  }

  private static void parameters(Connection connection) throws SQLException {
    try (PreparedStatement insert =
        connection.prepareStatement("INSERT INTO t (id, name, price) VALUES (?, ?, ?)")) {
      for (int id = 3; id < 6; id++) {
        insert.setInt(1, id);
        insert.setString(2, "n" + id);
        insert.setBigDecimal(3, new BigDecimal("0.25"));
        insert.addBatch();
      }
      int changed = 0;
      for (int count : insert.executeBatch()) changed += count;
      print("batch", changed);
    }
    try (PreparedStatement query =
        connection.prepareStatement("SELECT name FROM t WHERE id > ? AND price < ?")) {
      query.setInt(1, 3);
      query.setBigDecimal(2, new BigDecimal("1.00"));
      StringBuilder names = new StringBuilder();
      try (ResultSet found = query.executeQuery()) {
        while (found.next()) names.append(found.getString(1)).append(' ');
      }
      print("prepared", names.toString().trim());
    }
    try (PreparedStatement update =
        connection.prepareStatement("UPDATE t SET name = ? WHERE id = ?")) {
      update.setString(1, "new");
      update.setInt(2, 2);
      print("updated", update.executeUpdate());
    }
  }

  private static void metadata(Connection connection) throws SQLException {
    DatabaseMetaData facts = connection.getMetaData();
    print("product", facts.getDatabaseProductName() + " " + facts.supportsTransactions()
        + " " + facts.supportsSavepoints() + " " + facts.getIdentifierQuoteString());
    print("catalogs", list(facts.getCatalogs(), 1));
    print("schemas", list(facts.getSchemas(), 1));
    print("tables of", list(facts.getTables(null, "default", "%", null), 3));
    print("columns of", list(facts.getColumns(null, null, "t", "%"), 4));
    print("kinds", list(facts.getTableTypes(), 1));
    print("keys", list(facts.getPrimaryKeys(null, null, "t"), 4));
  }

  private static void errors(Connection connection) throws SQLException {
    for (String text : new String[] {"SELEKT 1", "SET a = 1"}) {
      try {
        rows(connection, text);
      } catch (Exception refused) {
        print("refused", chain(refused));
      }
    }
  }

  /** Transactions by SQL, in the session that the driver keeps by a cookie. */
  private static void transactions(Connection connection) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.execute("BEGIN");
      statement.executeUpdate("DELETE FROM t WHERE id > 0");
      statement.execute("ROLLBACK");
      statement.execute("BEGIN");
      statement.executeUpdate("DELETE FROM t WHERE id > 2");
      statement.execute("COMMIT");
    }
    print("left", rows(connection, "SELECT id FROM t"));
  }

  private static String rows(Connection connection, String text) throws SQLException {
    StringBuilder found = new StringBuilder();
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery(text)) {
      int width = rows.getMetaData().getColumnCount();
      while (rows.next()) {
        for (int place = 1; place <= width; place++) found.append(rows.getString(place)).append(' ');
      }
    }
    return found.toString().trim();
  }

  private static String list(ResultSet rows, int place) throws SQLException {
    StringBuilder found = new StringBuilder();
    try (rows) {
      while (rows.next()) found.append(rows.getString(place)).append(' ');
    }
    return found.toString().trim();
  }

  private static String chain(Throwable error) {
    StringBuilder found = new StringBuilder();
    for (Throwable one = error; one != null; one = one.getCause()) {
      found.append(one.getMessage()).append(" / ");
    }
    return found.toString().replace('\n', ' ');
  }

  private static void print(String name, Object value) {
    System.out.println("> " + name + ": " + value);
  }
}
