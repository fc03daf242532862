"""The server beside Unity Catalog's own: the same requests, and what each of them answers.

Where the two differ, `DIFFERENCES` says why; whatever else differs fails. Without the reference
(tools/unity_server.sh builds it) the tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.catalog.unity.reference import started
from tests.server.process import ServerProcess
from tests.server.sides import (
    CATALOG,
    SCHEMA_NAME,
    Side,
    Told,
    add,
    published,
    tables_path,
)

pytestmark = pytest.mark.no_interop("its files' rows are only said to be there")
ELSEWHERE = "00000000-0000-4000-8000-000000000000"
FULL = f"{CATALOG}.{SCHEMA_NAME}"

Step = tuple[str, Told]
Case = Callable[[Side], Iterator[Step]]


def names(side: Side) -> Iterator[Step]:
    """Catalogs, schemas and tables by name."""
    get = "GET"
    yield "catalogs", side.call(get, "/catalogs")
    yield "a catalog", side.call(get, f"/catalogs/{CATALOG}")
    yield "no catalog", side.call(get, "/catalogs/nowhere")
    yield "schemas", side.call(get, f"/schemas?catalog_name={CATALOG}")
    yield "schemas of no catalog", side.call(get, "/schemas?catalog_name=nowhere")
    yield "schemas, of which isn't said", side.call(get, "/schemas")
    yield "a schema", side.call(get, f"/schemas/{FULL}")
    yield "no schema", side.call(get, f"/schemas/{CATALOG}.nowhere")
    yield "no schema's name", side.call(get, "/schemas/one")
    yield "tables", side.call(get, f"/tables?catalog_name={CATALOG}&schema_name={SCHEMA_NAME}")
    yield (
        "tables of no schema",
        side.call(get, f"/tables?catalog_name={CATALOG}&schema_name=nowhere"),
    )
    yield "no table", side.call(get, f"/tables/{FULL}.nothing")
    yield "no table's name", side.call(get, "/tables/nothing")
    yield "the metastore", side.call(get, "/metastore_summary")
    yield "no such way", side.call(get, "/nothing")


def schemas(side: Side) -> Iterator[Step]:
    """Schemas are made and dropped."""
    told = {"name": "more", "catalog_name": CATALOG, "comment": "of a test"}
    yield "made", side.call("POST", "/schemas", told)
    yield "made again", side.call("POST", "/schemas", told)
    yield "shown", side.call("GET", f"/schemas/{CATALOG}.more")
    for label, name in {"empty": "", "dotted": "a.b", "spaced": "a b", "slashed": "a/b"}.items():
        body = {"name": name, "catalog_name": CATALOG}
        yield f"{label} name", side.call("POST", "/schemas", body)
    yield "of no catalog", side.call("POST", "/schemas", {"name": "x", "catalog_name": "nowhere"})
    yield "without a name", side.call("POST", "/schemas", {"catalog_name": CATALOG})
    yield "dropped", side.call("DELETE", f"/schemas/{CATALOG}.more")
    yield "dropped again", side.call("DELETE", f"/schemas/{CATALOG}.more")
    side.create("held")
    yield "dropped while it holds a table", side.call("DELETE", f"/schemas/{FULL}")
    yield "its table is there", side.of("HEAD", "held")


def configuration(side: Side) -> Iterator[Step]:
    """What the server speaks."""
    path = "/delta/v1/config"
    yield "asked", side.call("GET", f"{path}?catalog={CATALOG}&protocol-versions=1.0")
    yield "of no catalog", side.call("GET", f"{path}?catalog=nowhere&protocol-versions=1.0")
    yield "without a catalog", side.call("GET", f"{path}?protocol-versions=1.0")
    yield "without versions", side.call("GET", f"{path}?catalog={CATALOG}")


def creation(side: Side) -> Iterator[Step]:
    """A table is made, and is made wrongly."""
    yield "staged", side.stage_table("t")
    yield "looked for before it is made", side.of("GET", "t")
    time = side.write_first("t")
    yield "made", side.call("POST", tables_path(), side.create_request("t", time))
    yield "made again", side.call("POST", tables_path(), side.create_request("t", time))
    yield "staged where it is", Side.stage_table(side, "t")
    yield "loaded", side.of("GET", "t")
    yield "its head", side.of("HEAD", "t")
    yield "as the older API shows it", side.call("GET", f"/tables/{FULL}.t")
    yield "listed", side.call("GET", f"/tables?catalog_name={CATALOG}&schema_name={SCHEMA_NAME}")


def wrong_creation(side: Side) -> Iterator[Step]:
    """Tables are asked for that can't be made."""
    for label, name in {"empty": "", "dotted": "a.b", "spaced": "a b", "slashed": "a/b"}.items():
        yield (
            f"staged with {label} name",
            side.call("POST", tables_path("staging-tables"), {"name": name}),
        )
    yield "staged without a name", side.call("POST", tables_path("staging-tables"), {})
    side.stage_table("t")
    time = side.write_first("t")

    def asked(**changes: object) -> Told:
        return side.call("POST", tables_path(), side.create_request("t", time, **changes))

    own = side.tables["t"]
    features = dict(own.required["protocol"])
    lacking = {**features, "writer-features": features["writer-features"][1:]}
    properties = dict(own.required["properties"])
    yield "elsewhere", asked(location=own.place.replace(own.id, ELSEWHERE))
    yield "without a location", asked(location=None)
    yield "without a type", asked(table_type=None)
    yield "of no type", asked(table_type="MOON")
    yield "without columns", asked(columns=None)
    yield "without a protocol", asked(protocol=None)
    yield "without a feature", asked(protocol=lacking)
    yield "of an old protocol", asked(protocol={**features, "min-writer-version": 2})
    yield "without properties", asked(properties=None)
    yield (
        "with another table's id",
        asked(properties={**properties, "io.unitycatalog.tableId": ELSEWHERE}),
    )
    yield (
        "without deletion vectors",
        asked(properties={**properties, "delta.enableDeletionVectors": "false"}),
    )
    yield "without a time", asked(last_commit_timestamp_ms=None)
    yield "with another name", asked(name="other name")
    yield "none of that made it", side.of("HEAD", "t")
    yield "made", asked()


def commits(side: Side) -> Iterator[Step]:
    """Versions are asked for: the next, taken ones, later ones."""
    side.create("t")
    yield "the first", side.commit("t", 1)
    yield "the second", side.commit("t", 2)
    own = side.tables["t"]
    yield "the second again", side.update("t", add(own.taken[2]))
    yield "the first again", side.update("t", add(own.taken[1]))
    yield "a taken one", side.commit("t", 2)
    yield "one long taken", side.commit("t", 1)
    yield "beyond the next", side.commit("t", 4)
    yield "version 0", side.commit("t", 0)
    yield "a negative one", side.update("t", add({**side.stage("t", 3), "version": -1}))
    yield "the third", side.commit("t", 3)
    yield "loaded", side.of("GET", "t")


def staged_files(side: Side) -> Iterator[Step]:
    """What is told of a staged commit isn't so."""
    side.create("t")
    side.commit("t", 1)
    good = side.stage("t", 2)
    for label, changes in {
        "a path": {"file-name": f"../{good['file-name']}"},
        "no name": {"file-name": ""},
        "another name": {"file-name": "commit.json"},
        "another file": {"file-name": good["file-name"].replace("-4000-", "-4001-")},
        "no size": {"file-size": 0},
        "another size": {"file-size": good["file-size"] + 1},
        "no time": {"timestamp": 0},
        "no change": {"file-modification-timestamp": 0},
    }.items():
        yield label, side.update("t", add({**good, **changes}))
    for key in good:
        rest = {name: value for name, value in good.items() if name != key}
        yield f"without {key}", side.update("t", add(rest))
    yield "nothing of it", side.update("t", {"action": "add-commit"})
    yield "as it is", side.update("t", add(good))


def requirements(side: Side) -> Iterator[Step]:
    """What a request asks to be so."""
    side.create("t")
    side.commit("t", 1)
    own, etag = side.same("t"), side.of("GET", "t").body["metadata"]["etag"]
    for label, required in {
        "none": [],
        "no uuid": [{"type": "assert-etag", "etag": etag}],
        "another table's": [{"type": "assert-table-uuid", "uuid": ELSEWHERE}],
        "no table's": [{"type": "assert-table-uuid", "uuid": "t"}],
        "without a value": [{"type": "assert-table-uuid"}],
        "twice": [own, own],
        "unknown": [own, {"type": "assert-moon"}],
        "a stale etag": [own, {"type": "assert-etag", "etag": "old"}],
        "no list": "uuid",
    }.items():
        yield label, side.commit("t", 2, requirements=required)
    yield "the etag", side.commit("t", 2, requirements=[own, {"type": "assert-etag", "etag": etag}])
    stale = [own, {"type": "assert-etag", "etag": "old"}]
    taken = side.tables["t"].taken[2]
    yield "what stands, with a stale etag", side.update("t", add(taken), requirements=stale)
    yield (
        "what stands, of another table",
        side.update(
            "t", add(taken), requirements=[{"type": "assert-table-uuid", "uuid": ELSEWHERE}]
        ),
    )


def updates(side: Side) -> Iterator[Step]:
    """What a request asks to be done."""
    side.create("t")
    side.commit("t", 1)
    one = side.stage("t", 2)
    yield "nothing", side.update("t")
    yield "twice", side.update("t", add(one), add(one))
    yield "unknown", side.update("t", {"action": "fly"})
    yield "without an action", side.update("t", {"commit": one})
    yield (
        "of external tables",
        side.update(
            "t",
            {
                "action": "update-metadata-snapshot-version",
                "last-commit-version": 1,
                "last-commit-timestamp-ms": 1,
            },
        ),
    )
    yield "no table", side.of("POST", "nothing", {"requirements": [], "updates": []})
    for label, content in {
        "empty": b" ",
        "half": b"{",
        "a list": b"[]",
        "a text": b'"x"',
        "no text": b"\xff\xfe",
        "null": b"null",
    }.items():
        yield f"a body that is {label}", side.call("POST", f"{tables_path()}/t", content=content)


def publishing(side: Side) -> Iterator[Step]:
    """What clients say that they published."""
    side.create("t")
    yield "before any commit", side.update("t", published(0))
    side.commit("t", 1)
    side.commit("t", 2)
    yield "beyond the newest", side.update("t", published(3))
    yield "a negative one", side.update("t", published(-1))
    yield "none", side.update("t", {"action": "set-latest-backfilled-version"})
    yield "no number", side.update("t", published("one"))
    side.publish("t", 1)
    yield "the first", side.update("t", published(1))
    yield "the first again", side.update("t", published(1))
    side.publish("t", 2)
    yield "the newest", side.update("t", published(2))
    yield "an older one", side.update("t", published(1))
    yield "loaded", side.of("GET", "t")
    yield "what is published, again", side.update("t", add(side.tables["t"].taken[1]))
    yield "the newest, again", side.update("t", add(side.tables["t"].taken[2]))
    yield "another in its place", side.commit("t", 1)
    third = side.stage("t", 3)
    yield "with a commit", side.update("t", add(third), published(2))
    fourth = side.stage("t", 4)
    yield "with a commit, beyond it", side.update("t", add(fourth), published(4))


def many_unpublished(side: Side) -> Iterator[Step]:
    """Commits that nobody publishes."""
    side.create("t")
    for version in range(1, 12):
        yield f"version {version}", side.commit("t", version)


def renaming(side: Side) -> Iterator[Step]:
    """A table gets another name."""
    side.create("t")
    side.create("u")
    yield "a taken one", side.of("POST", "t", {"new-name": "u"}, "/rename")
    yield "its own", side.of("POST", "t", {"new-name": "t"}, "/rename")
    for label, name in {"empty": "", "dotted": "a.b", "spaced": "a b", "slashed": "a/b"}.items():
        yield label, side.of("POST", "t", {"new-name": name}, "/rename")
    yield "none", side.of("POST", "t", {}, "/rename")
    yield "of no table", side.of("POST", "nothing", {"new-name": "x"}, "/rename")
    yield "a free one", side.of("POST", "t", {"new-name": "v"}, "/rename")
    yield "the old one", side.of("HEAD", "t")
    yield "the new one", side.of("GET", "v")
    side.tables["v"] = side.tables.pop("t")
    yield "a commit of it", side.commit("v", 1)


def deletion(side: Side) -> Iterator[Step]:
    """Tables go."""
    side.create("t")
    side.create("u")
    yield "by the Delta API", side.of("DELETE", "t")
    yield "again", side.of("DELETE", "t")
    yield "it is gone", side.of("HEAD", "t")
    yield "loaded", side.of("GET", "t")
    yield "a commit of it", side.update("t", published(0))
    yield "by the older API", side.call("DELETE", f"/tables/{FULL}.u")
    yield "so again", side.call("DELETE", f"/tables/{FULL}.u")
    side.stage_table("t")
    yield (
        "a new one of its name",
        side.call("POST", tables_path(), side.create_request("t", side.write_first("t"))),
    )


def credentials(side: Side) -> Iterator[Step]:
    """What clients need to open files; metrics that they tell."""
    side.create("t")
    own = side.tables["t"]
    for operation in ("READ", "READ_WRITE", "FLY"):
        query = f"/credentials?operation={operation}"
        yield f"to {operation}", side.of("GET", "t", below=query)
        path = f"/delta/v1/temporary-path-credentials?location={own.place}&operation={operation}"
        yield f"to {operation} a path", side.call("GET", path)
        body = {"table_id": own.id, "operation": operation}
        yield f"to {operation} by id", side.call("POST", "/temporary-table-credentials", body)
    yield "for what, isn't said", side.of("GET", "t", below="/credentials")
    yield "of no table", side.of("GET", "nothing", below="/credentials?operation=READ")
    body = {"table_id": ELSEWHERE, "operation": "READ"}
    yield "of no table's id", side.call("POST", "/temporary-table-credentials", body)
    yield (
        "of no staged table",
        side.call("GET", f"/delta/v1/staging-tables/{ELSEWHERE}/credentials"),
    )
    yield "of what is no id", side.call("GET", "/delta/v1/staging-tables/t/credentials")
    side.stage_table("u")
    staged = side.tables["u"].id
    yield "of a staged table", side.call("GET", f"/delta/v1/staging-tables/{staged}/credentials")
    yield "metrics", side.of("POST", "t", {"table-id": own.id}, "/metrics")
    yield "metrics of another table", side.of("POST", "t", {"table-id": ELSEWHERE}, "/metrics")
    yield "metrics of none", side.of("POST", "t", {}, "/metrics")
    yield "metrics of no table", side.of("POST", "nothing", {"table-id": own.id}, "/metrics")


CASES: tuple[Case, ...] = (
    names,
    schemas,
    configuration,
    creation,
    wrong_creation,
    commits,
    staged_files,
    requirements,
    updates,
    publishing,
    many_unpublished,
    renaming,
    deletion,
    credentials,
)

_OF_THE_LOG = "a new table is what its first commit says; what a request says beside it isn't asked"
_AGAIN = "the same request again, as after a lost answer, is answered as the first time"
_STAGED = "ours reads the staged commit first, so that only a file that is as it was told is one"
_ORDER = "ours looks whether there is such a table first"
_BY_ITSELF = "ours publishes each commit by itself, and only checks what it is told of that"
_STATELESS = "ours keeps no list of staged tables: an id is good for a place in the warehouse"
_NOTED = "the lake's log tells what a table is called, so that a rename is a version"
DIFFERENCES = {
    ("schemas", "dropped while it holds a table"): "the default schema isn't dropped, empty or not",
    ("creation", "made again"): _AGAIN,
    ("wrong_creation", "elsewhere"): _STATELESS,
    ("wrong_creation", "of no type"): "501: it says that lake.attach takes such a table in",
    ("wrong_creation", "without columns"): _OF_THE_LOG,
    ("wrong_creation", "without a feature"): _OF_THE_LOG,
    ("wrong_creation", "of an old protocol"): _OF_THE_LOG,
    ("wrong_creation", "with another table's id"): _OF_THE_LOG,
    ("wrong_creation", "without deletion vectors"): _OF_THE_LOG,
    ("wrong_creation", "none of that made it"): _OF_THE_LOG,
    ("staged_files", "another name"): _STAGED,
    ("staged_files", "another file"): _STAGED,
    ("staged_files", "another size"): _STAGED,
    ("staged_files", "as it is"): "the reference took the file of another name",
    ("requirements", "no table's"): "a text that is no uuid is another table's",
    ("requirements", "without a value"): "the reference takes it for the table's own",
    ("requirements", "a stale etag"): "the reference has made the version before",
    ("requirements", "the etag"): "the reference has made the version before",
    ("updates", "no table"): _ORDER,
    ("publishing", "before any commit"): _BY_ITSELF,
    ("publishing", "a negative one"): "the reference lets it pass",
    ("many_unpublished", "version 11"): _BY_ITSELF,
    ("renaming", "the new one"): _NOTED,
    ("renaming", "a commit of it"): _NOTED,
    ("credentials", "to READ a path"): "the reference of that day doesn't have the route",
    ("credentials", "to READ_WRITE a path"): "the reference of that day doesn't have the route",
    ("credentials", "to FLY a path"): "the reference of that day doesn't have the route",
    ("credentials", "of no staged table"): _STATELESS,
    ("credentials", "of what is no id"): _STATELESS,
}
"""Why ours answers otherwise, by case and step."""


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """The reference, and ours over a new lake; both have the catalog and the schema."""
    folder: Path = tmp_path_factory.mktemp("sides")
    with started(folder / "reference") as url, ServerProcess(folder / CATALOG) as ours:
        pair = Side("reference", url), Side("ours", ours.url)
        root = (folder / "reference" / "tables").as_uri()
        pair[0].call("POST", "/catalogs", {"name": CATALOG, "storage_root": root})
        pair[0].call("POST", "/schemas", {"name": SCHEMA_NAME, "catalog_name": CATALOG})
        yield pair
        for side in pair:
            side.close()


def _summary(told: Told) -> tuple[object, ...]:
    """What has to be alike: status, the kind of error, and the newest version."""
    body = told.body if isinstance(told.body, dict) else {}
    return told.status, told.kind, body.get("latest-table-version")


@pytest.mark.peer("unity-server")
@pytest.mark.parametrize("case", CASES, ids=lambda one: one.__name__)
def test_both_answer_alike(sides: tuple[Side, Side], case: Case) -> None:
    reference, ours = sides
    wrong = []
    try:
        for (label, theirs), (_, own) in zip(case(reference), case(ours), strict=True):
            one, other = _summary(theirs), _summary(own)
            if theirs.status == own.status and _says_nothing(theirs):
                other = (own.status, "", other[2])
            if (one != other) != ((case.__name__, label) in DIFFERENCES):
                wrong.append(f"{label}: the reference {one}, ours {other}: {own.body}")
    finally:
        for side in sides:
            for name in ("t", "u", "v", "held"):
                side.of("DELETE", name)
            side.tables.clear()
    assert not wrong, "\n".join(wrong)


def _says_nothing(told: Told) -> bool:
    """Whether an error says nothing of its kind."""
    return told.status >= 400 and not told.kind


def test_each_difference_is_of_a_case() -> None:
    assert {case for case, _ in DIFFERENCES} <= {case.__name__ for case in CASES}
