"""What Delta Spark writes with any of its table features on, we read right or refuse by name.

The list of features is that of Delta Spark's jar: one that a new Delta brings is tried as a table
that lists it, without anybody's doing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.shared_tables.features.checksums import check_checksums, commits
from tests.shared_tables.features.one_session import Peers
from tests.shared_tables.features.recipes import RECIPES, REFUSED, Recipe
from tests.shared_tables.workers import Refused
from txlake.protocol.features import READABLE, WRITABLE

pytestmark = [
    pytest.mark.broad,
    pytest.mark.no_interop("Delta Spark reads every version here"),
]

MERGE = (
    "MERGE INTO {t} t USING (SELECT id, CAST(7 AS INT) AS k FROM range(22, 24, 1, 1)) u "
    "ON t.id = u.id WHEN MATCHED THEN UPDATE SET k = u.k "
    "WHEN NOT MATCHED THEN INSERT (id, k) VALUES (u.id, u.k)"
)
OURS = (
    "INSERT INTO {t} (id, k, s) SELECT id, CAST(id AS INT), {value} FROM range(20, 23, 1, 1)",
    "UPDATE {t} SET k = k + 4 WHERE id = 1",
    "DELETE FROM {t} WHERE id = 21",
    MERGE,
)

# The writer versions that imply features without listing them (PROTOCOL.md, "Table Features").
NUMBERED = {
    "appendOnly": 2,
    "invariants": 2,
    "checkConstraints": 3,
    "changeDataFeed": 4,
    "generatedColumns": 4,
    "columnMapping": 5,
    "identityColumns": 6,
}


def create(recipe: Recipe, folder: Path, peers: Peers) -> str:
    """The table without rows by Delta Spark, which may refuse it; its name in SQL."""
    table = f"delta.`{folder}`"
    properties = [f"delta.feature.{feature}=supported" for feature in recipe.listed]
    properties += ["delta.checkpointInterval=3", *recipe.properties]
    listed = ", ".join("'{}' = '{}'".format(*entry.split("=", 1)) for entry in properties)
    peers.delta.sql(
        f"CREATE TABLE {table} ({recipe.columns}) USING delta {recipe.clause} "
        f"TBLPROPERTIES ({listed})"
    )
    return table


def latest(folder: Path) -> int:
    return int(commits(folder)[-1].stem)


def features_of(folder: Path) -> tuple[set[str], set[str]]:
    """What the newest protocol action says: for readers, and in all."""
    found: tuple[set[str], set[str]] = set(), set()
    for commit in commits(folder):
        for line in commit.read_text().splitlines():
            if (protocol := json.loads(line).get("protocol")) is not None:
                readers = set(protocol.get("readerFeatures", ()))
                version = protocol["minWriterVersion"]
                numbered = {name for name, least in NUMBERED.items() if least <= version < 7}
                found = readers, readers | set(protocol.get("writerFeatures", numbered))
    return found


def refused(request: Callable[[], object], features: set[str]) -> None:
    """txlake refuses the request, naming one of these features."""
    with pytest.raises(Refused) as refusal:
        request()
    assert refusal.value.name == "UnsupportedFeature"
    assert any(name in str(refusal.value) for name in features)


def agree(recipe: Recipe, folder: Path, first: int, peers: Peers) -> None:
    """Both engines read the same at every version since `first`."""
    versions = range(first, latest(folder) + 1)
    others = [name.split()[0] for name in recipe.columns.split(", ")[3:]]
    columns = ("id", "CAST(k AS BIGINT) AS k", *others)
    theirs = peers.delta.rows(folder, versions, *columns, f"{recipe.shown} AS s")
    shown = recipe.shown_here or recipe.shown
    assert peers.txlake.rows(folder, versions, *columns, f"{shown} AS s") == theirs


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: "+".join(recipe.features))
def test_what_delta_spark_writes(recipe: Recipe, peers: Peers, tmp_path: Path) -> None:
    written_and_read(recipe, tmp_path / "t", peers)


def written_and_read(recipe: Recipe, folder: Path, peers: Peers) -> None:
    table = create(recipe, folder, peers)
    insert = "INSERT INTO {t} (id, k, s) SELECT id, CAST(id % 2 AS INT), {value} "
    for statement in (f"{insert} FROM range(0, 6, 1, 1)", *recipe.changes):
        peers.delta.sql(statement.format(t=table, value=recipe.value))
    readers, features = features_of(folder)
    assert set(recipe.features) <= features
    theirs = latest(folder)
    assert list((folder / "_delta_log").glob("*.checkpoint*")) or theirs < 3
    unreadable = readers - READABLE
    if unreadable:
        refused(partial(peers.txlake.rows, folder, [theirs]), unreadable)
        return
    agree(recipe, folder, 1, peers)

    unwritable = set(recipe.features) - WRITABLE
    for statement in OURS[:1] if "appendOnly" in recipe.features else OURS:
        before = latest(folder)
        ours = partial(peers.txlake.sql, statement.format(t=table, value=recipe.value))
        if unwritable:
            refused(ours, unwritable)
            assert latest(folder) == before
        else:
            ours()
            assert latest(folder) == before + 1
    if not unwritable:
        agree(recipe, folder, theirs + 1, peers)
    check_checksums(folder)


def test_every_feature_that_the_jar_knows(peers: Peers, tmp_path: Path) -> None:
    have = {feature for recipe in RECIPES for feature in recipe.features} | set(REFUSED)
    assert have <= set(peers.features), "gone from Delta Spark"
    for feature in sorted(set(peers.features) - have):
        written_and_read(Recipe(features=(feature,), listed=(feature,)), tmp_path / feature, peers)


@pytest.mark.parametrize("feature", REFUSED)
def test_what_delta_spark_itself_refuses(feature: str, peers: Peers, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    with pytest.raises(Refused, match=REFUSED[feature]):
        peers.delta.sql(
            f"INSERT INTO {create(Recipe(listed=(feature,)), folder, peers)} (id) VALUES (1)"
        )
    if (folder / "_delta_log").exists():
        refused(partial(peers.txlake.rows, folder, [0]), {feature})
