from __future__ import annotations

from pathlib import Path

import pytest

from tests.session.tables import table
from txlake.commands.generate import write_manifests
from txlake.errors import InvalidRequest
from txlake.protocol.actions import Add
from txlake.protocol.deletion_vectors import relative_vector
from txlake.protocol.reach import Reach
from txlake.storage import open_store

MODE = "symlink_format_manifest"


def add(path: str, value: str | None = None) -> Add:
    return Add(
        path=path, partition_values={"p": value}, size=1, modification_time=1, data_change=True
    )


def manifests(folder: Path) -> dict[str, str]:
    root = folder / "_symlink_format_manifest"
    return {
        str(found.relative_to(root).parent): found.read_text() for found in root.rglob("manifest")
    }


def test_a_manifest_for_each_partition(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    start = table("a int, p string", partition_by=("p",))
    first = start.apply([add("p=x/f%20", "x"), add("p=x/g", "x"), add("h", "a/b")])
    assert write_manifests(MODE.upper(), first, store, Reach(store.url)) == 2
    assert manifests(tmp_path) == {
        "p=x": f"{store.url}/p=x/f \n{store.url}/p=x/g\n",
        "p=a%2Fb": f"{store.url}/h\n",
    }
    assert write_manifests(MODE, start.apply([add("n", None)]), store, Reach(store.url)) == 1
    assert manifests(tmp_path) == {"p=__HIVE_DEFAULT_PARTITION__": f"{store.url}/n\n"}


def test_a_table_without_partitions_has_one_even_when_it_is_empty(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    start = table("a int")
    assert write_manifests(MODE, start, store, Reach(store.url)) == 1
    assert manifests(tmp_path) == {".": ""}
    write_manifests(MODE, start.apply([add("f")]), store, Reach(store.url))
    assert manifests(tmp_path) == {".": f"{store.url}/f\n"}


def test_tables_that_a_list_of_files_does_not_describe(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(InvalidRequest, match="t: GENERATE knows symlink_format_manifest"):
        write_manifests("other", table("a int"), store, Reach(store.url))
    with pytest.raises(InvalidRequest, match="column mapping"):
        write_manifests(
            MODE,
            table("a int", properties={"delta.columnMapping.mode": "name"}),
            store,
            Reach(store.url),
        )
    vector = relative_vector("11111111-2222-3333-4444-555555555555", "", 1, 40, 2)
    deleted = table("a int").apply(
        [
            Add(
                path="f",
                partition_values={},
                size=1,
                modification_time=1,
                data_change=True,
                deletion_vector=vector,
            )
        ]
    )
    with pytest.raises(InvalidRequest, match=r"deletion vectors.*PURGE"):
        write_manifests(MODE, deleted, store, Reach(store.url))
    assert not list(tmp_path.iterdir())
