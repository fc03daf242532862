import static java.util.Collections.emptyMap;

import io.delta.kernel.DataWriteContext;
import io.delta.kernel.Operation;
import io.delta.kernel.Scan;
import io.delta.kernel.Snapshot;
import io.delta.kernel.Transaction;
import io.delta.kernel.data.ColumnVector;
import io.delta.kernel.data.ColumnarBatch;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.data.Row;
import io.delta.kernel.defaults.engine.DefaultEngine;
import io.delta.kernel.defaults.internal.data.DefaultColumnarBatch;
import io.delta.kernel.defaults.internal.data.vector.DefaultGenericVector;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.internal.InternalScanFileUtils;
import io.delta.kernel.internal.data.ScanStateRow;
import io.delta.kernel.types.IntegerType;
import io.delta.kernel.types.StructType;
import io.delta.kernel.unitycatalog.UCCatalogManagedClient;
import io.delta.kernel.unitycatalog.UCTableIdentifier;
import io.delta.kernel.utils.CloseableIterable;
import io.delta.kernel.utils.CloseableIterator;
import io.delta.kernel.utils.FileStatus;
import io.delta.storage.commit.TableIdentifier;
import io.delta.storage.commit.uccommitcoordinator.UCDeltaModels;
import io.delta.storage.commit.uccommitcoordinator.UCDeltaTokenBasedRestClient;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;

/**
 * Delta Kernel as a client of a catalog: a command a line on standard input, an answer a line.
 *
 * <p>Arguments: the server's URI, a token, the catalog. Tables are of the schema `default` and have
 * one column, `id INT`. `load` keeps a snapshot, which `append` and `set` go on from. `prepare`
 * stages an append to several tables, for a transaction of a given id, and `ratify` asks for it.
 */
public final class KernelClient {
  private static final String SCHEMA = "default";
  private static final StructType COLUMNS = new StructType().add("id", IntegerType.INTEGER);

  private final Engine engine = DefaultEngine.create(new Configuration());
  private final Map<String, Snapshot> loaded = new HashMap<>();
  private final UCDeltaTokenBasedRestClient rest;
  private final UCCatalogManagedClient client;
  private final StagingClient staging;
  private final String catalog;

  private KernelClient(String uri, String token, String catalog) {
    this.rest =
        new UCDeltaTokenBasedRestClient(
            Map.of("uri", uri, "auth.type", "static", "auth.token", token), null);
    this.client = new UCCatalogManagedClient(rest);
    this.staging = new StagingClient(rest, uri, token);
    this.catalog = catalog;
  }

  public static void main(String[] arguments) throws Exception {
    KernelClient own = new KernelClient(arguments[0], arguments[1], arguments[2]);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      System.out.println("> " + own.answer(line.trim().split(" +")).replace('\n', ' '));
      System.out.flush();
    }
    own.rest.close();
  }

  private String answer(String[] words) {
    try {
      String[] rest = Arrays.copyOfRange(words, 2, words.length);
      return "ok " + carryOut(words[0], words[1], rest);
    } catch (Throwable error) {
      StringBuilder told = new StringBuilder("failed");
      for (Throwable one = error; one != null; one = one.getCause()) {
        told.append(' ').append(one.getClass().getSimpleName()).append(": ");
        told.append(one.getMessage()).append(';');
      }
      return told.toString();
    }
  }

  private String carryOut(String command, String table, String[] rest) throws Exception {
    switch (command) {
      case "create":
        return String.valueOf(create(table));
      case "load":
        loaded.put(table, latest(table));
        return String.valueOf(loaded.get(table).getVersion());
      case "append":
        return String.valueOf(append(loaded.get(table), rest));
      case "prepare":
        return prepare(table.split(","), rest[0], Arrays.copyOfRange(rest, 1, rest.length));
      case "ratify":
        return staging.ratify();
      case "set":
        return String.valueOf(set(loaded.get(table), rest[0], rest[1]));
      case "read":
        return read(latest(table));
      case "publish":
        return String.valueOf(latest(table).publish(engine).getVersion());
      case "checkpoint":
        Snapshot published = latest(table).publish(engine);
        published.writeCheckpoint(engine);
        return String.valueOf(published.getVersion());
      default:
        throw new IllegalArgumentException(command);
    }
  }

  private UCTableIdentifier named(String table) {
    return new UCTableIdentifier(catalog, SCHEMA, table);
  }

  private long create(String table) throws Exception {
    UCDeltaModels.StagingTableInfo place =
        rest.createStagingTable(new TableIdentifier(catalog, SCHEMA, table));
    Map<String, String> properties = new HashMap<>(place.getRequiredProperties());
    for (String feature : place.getRequiredProtocol().getWriterFeatures()) {
      properties.put("delta.feature." + feature, "supported");
    }
    String id = place.getTableId().toString();
    return client
        .buildCreateTableTransaction(id, place.getLocation(), COLUMNS, "kernel", named(table))
        .withTableProperties(properties)
        .build(engine)
        .commit(engine, CloseableIterable.emptyIterable())
        .getVersion();
  }

  private Snapshot latest(String table) throws Exception {
    return latest(client, info(table), table);
  }

  private UCDeltaModels.TableInfo info(String table) throws Exception {
    return rest.loadTable(new TableIdentifier(catalog, SCHEMA, table));
  }

  private Snapshot latest(UCCatalogManagedClient by, UCDeltaModels.TableInfo info, String table) {
    return by.loadSnapshot(
        engine,
        info.getTableId().toString(),
        info.getLocation(),
        named(table),
        Optional.empty(),
        Optional.empty());
  }

  private String prepare(String[] tables, String transactionId, String[] values) throws Exception {
    Map<String, Long> versions = new HashMap<>();
    List<Snapshot> snapshots = new ArrayList<>();
    for (String table : tables) {
      UCDeltaModels.TableInfo info = info(table);
      snapshots.add(latest(staging, info, table));
      versions.put(info.getTableId().toString(), snapshots.get(snapshots.size() - 1).getVersion());
    }
    staging.begin(transactionId, catalog, versions);
    for (Snapshot snapshot : snapshots) {
      append(snapshot, values);
    }
    return "prepared";
  }

  private long set(Snapshot snapshot, String key, String text) {
    return snapshot
        .buildUpdateTableTransaction("kernel", Operation.MANUAL_UPDATE)
        .withTablePropertiesAdded(Map.of(key, text))
        .build(engine)
        .commit(engine, CloseableIterable.emptyIterable())
        .getVersion();
  }

  private long append(Snapshot snapshot, String[] values) throws Exception {
    Transaction transaction =
        snapshot.buildUpdateTableTransaction("kernel", Operation.WRITE).build(engine);
    Row state = transaction.getTransactionState(engine);
    Object[] ids = Arrays.stream(values).map(Integer::valueOf).toArray();
    ColumnVector[] columns = {DefaultGenericVector.fromArray(IntegerType.INTEGER, ids)};
    FilteredColumnarBatch rows =
        new FilteredColumnarBatch(
            new DefaultColumnarBatch(ids.length, COLUMNS, columns), Optional.empty());
    DataWriteContext where = Transaction.getWriteContext(engine, state, emptyMap());
    CloseableIterator<FilteredColumnarBatch> physical =
        Transaction.transformLogicalData(engine, state, over(List.of(rows)), emptyMap());
    CloseableIterable<Row> actions =
        CloseableIterable.inMemoryIterable(
            Transaction.generateAppendActions(
                engine,
                state,
                engine
                    .getParquetHandler()
                    .writeParquetFiles(
                        where.getTargetDirectory(), physical, where.getStatisticsColumns()),
                where));
    return transaction.commit(engine, actions).getVersion();
  }

  private String read(Snapshot snapshot) throws Exception {
    Scan scan = snapshot.getScanBuilder().build();
    Row state = scan.getScanState(engine);
    StructType physical = ScanStateRow.getPhysicalDataReadSchema(state);
    TreeMap<Integer, Integer> counts = new TreeMap<>();
    try (CloseableIterator<FilteredColumnarBatch> batches = scan.getScanFiles(engine)) {
      while (batches.hasNext()) {
        try (CloseableIterator<Row> files = batches.next().getRows()) {
          while (files.hasNext()) {
            count(files.next(), state, physical, counts);
          }
        }
      }
    }
    StringBuilder told = new StringBuilder();
    counts.forEach((id, times) -> told.append((id + " ").repeat(times)));
    return told.toString().trim();
  }

  private void count(Row file, Row state, StructType physical, Map<Integer, Integer> counts)
      throws Exception {
    FileStatus status = InternalScanFileUtils.getAddFileStatus(file);
    CloseableIterator<ColumnarBatch> data =
        engine
            .getParquetHandler()
            .readParquetFiles(over(List.of(status)), physical, Optional.empty())
            .map(found -> found.getData());
    try (CloseableIterator<FilteredColumnarBatch> logical =
        Scan.transformPhysicalData(engine, state, file, data)) {
      while (logical.hasNext()) {
        try (CloseableIterator<Row> rows = logical.next().getRows()) {
          while (rows.hasNext()) {
            counts.merge(rows.next().getInt(0), 1, Integer::sum);
          }
        }
      }
    }
  }

  private static <T> CloseableIterator<T> over(List<T> values) {
    Iterator<T> own = values.iterator();
    return new CloseableIterator<T>() {
      @Override
      public boolean hasNext() {
        return own.hasNext();
      }

      @Override
      public T next() {
        return own.next();
      }

      @Override
      public void close() {}
    };
  }
}
