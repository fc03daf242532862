import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.delta.kernel.commit.CommitFailedException;
import io.delta.kernel.commit.CommitMetadata;
import io.delta.kernel.commit.CommitResponse;
import io.delta.kernel.commit.Committer;
import io.delta.kernel.data.Row;
import io.delta.kernel.defaults.internal.json.JsonUtils;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.internal.files.ParsedCatalogCommitData;
import io.delta.kernel.unitycatalog.UCCatalogManagedClient;
import io.delta.kernel.unitycatalog.UCCatalogManagedCommitter;
import io.delta.kernel.unitycatalog.UCTableIdentifier;
import io.delta.kernel.utils.CloseableIterator;
import io.delta.kernel.utils.FileStatus;
import io.delta.storage.commit.uccommitcoordinator.UCClient;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;

/**
 * A client of a catalog whose commits are staged, and ratified together.
 *
 * <p>Delta Kernel commits one table at a time. Its committer may be replaced, though: this one
 * writes the staged commit, with the group of the transaction, and leaves the ratification to
 * `ratify`, which is one request to the catalog for all tables.
 */
public final class StagingClient extends UCCatalogManagedClient {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String TAG = "delta.multiTableTransaction.transactionId";

  private final HttpClient http = HttpClient.newHttpClient();
  private final String uri;
  private final String token;
  private final ObjectNode request = JSON.createObjectNode();
  private ObjectNode group = JSON.createObjectNode();

  public StagingClient(UCClient ucClient, String uri, String token) {
    super(ucClient);
    this.uri = uri;
    this.token = token;
  }

  /** Begin a transaction that gives the tables with these ids the next versions after theirs. */
  public void begin(String transactionId, String catalog, Map<String, Long> readVersions)
      throws Exception {
    group = JSON.createObjectNode().put("transactionId", transactionId);
    ArrayNode participants = group.putArray("participants");
    new TreeMap<>(readVersions)
        .forEach(
            (id, version) ->
                participants.addObject().put("tableId", id).put("proposedVersion", version + 1));
    group.put("coordinatingCatalog", metastore());
    request.put("catalog", catalog).put("transaction-id", transactionId).putArray("tables");
  }

  /** Ask the catalog for all staged commits; its answer. */
  public String ratify() throws Exception {
    return send(
        HttpRequest.newBuilder(URI.create(uri + "/api/txlake/v1/transactions"))
            .header("Content-Type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(request.toString())));
  }

  private String metastore() throws Exception {
    URI summary = URI.create(uri + "/api/2.1/unity-catalog/metastore_summary");
    return JSON.readTree(send(HttpRequest.newBuilder(summary))).get("metastore_id").asText();
  }

  private String send(HttpRequest.Builder asked) throws Exception {
    HttpRequest whole = asked.header("Authorization", "Bearer " + token).build();
    HttpResponse<String> answer = http.send(whole, HttpResponse.BodyHandlers.ofString());
    if (answer.statusCode() != 200) {
      throw new IOException(answer.statusCode() + " " + answer.body());
    }
    return answer.body();
  }

  @Override
  protected Committer createUCCommitter(
      UCClient ucClient, String id, String place, UCTableIdentifier name) {
    return new UCCatalogManagedCommitter(ucClient, id, place, name) {
      @Override
      public CommitResponse commit(
          Engine engine, CloseableIterator<Row> actions, CommitMetadata about)
          throws CommitFailedException {
        try {
          return stage(engine, actions, about, id, name);
        } catch (IOException error) {
          throw new CommitFailedException(true, false, error.toString());
        }
      }
    };
  }

  private CommitResponse stage(
      Engine engine,
      CloseableIterator<Row> actions,
      CommitMetadata about,
      String id,
      UCTableIdentifier name)
      throws IOException {
    String path = about.generateNewStagedCommitFilePath();
    ObjectNode first = (ObjectNode) JSON.readTree(JsonUtils.rowToJson(actions.next()));
    ObjectNode info = (ObjectNode) first.get("commitInfo");
    info.putObject("tags").put(TAG, group.get("transactionId").asText());
    StringBuilder lines = new StringBuilder(first + "\n");
    ObjectNode second = JSON.createObjectNode();
    second.set("transactionGroup", group);
    lines.append(second).append('\n');
    while (actions.hasNext()) {
      lines.append(JsonUtils.rowToJson(actions.next())).append('\n');
    }
    actions.close();
    Path file = Path.of(URI.create(path).getPath());
    Files.createDirectories(file.getParent());
    Files.write(file, lines.toString().getBytes(StandardCharsets.UTF_8));
    FileStatus status = engine.getFileSystemClient().getFileStatus(file.toString());
    ObjectNode table = ((ArrayNode) request.get("tables")).addObject();
    table.put("schema", name.getSchemaName()).put("table", name.getTableName()).put("uuid", id);
    table
        .putObject("commit")
        .put("version", about.getVersion())
        .put("timestamp", info.get("inCommitTimestamp").asLong())
        .put("file-name", file.getFileName().toString())
        .put("file-size", status.getSize())
        .put("file-modification-timestamp", status.getModificationTime());
    return new CommitResponse(ParsedCatalogCommitData.forFileStatus(status));
  }
}
