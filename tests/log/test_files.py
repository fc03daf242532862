from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.commit.log_of import add, vector
from txlake.log.block import totals_of_adds
from txlake.log.file_columns import FileColumns
from txlake.log.files import FILES_SCHEMA, Files, Totals, adds_of, files_table
from txlake.protocol.actions import Add, DeletionVector, FileKey
from txlake.protocol.lazy_stats import DecodedStats, LazyStats


def _both(adds: list[Add]) -> list[Files]:
    """The same files from values and from a table."""
    return [Files.of(adds), Files.of_table(files_table(adds))]


def _full(path: str = "x") -> Add:
    return Add(
        path=path,
        partition_values={"p": "1", "q": None},
        size=7,
        modification_time=9,
        data_change=False,
        stats='{"numRecords":3}',
        tags={"k": "v", "n": None},
        deletion_vector=vector(),
        base_row_id=100,
        default_row_commit_version=4,
        clustering_provider="liquid",
        extra={"new": {"a": [1, None]}},
    )


def test_rows_and_actions_are_the_same_thing() -> None:
    adds = [_full(), add("plain"), add("empty", tags={})]
    table = files_table(adds)
    assert table.schema.equals(FILES_SCHEMA)
    assert adds_of(table) == adds
    assert adds_of(table.slice(1, 2)) == adds[1:]
    assert adds_of(FILES_SCHEMA.empty_table()) == []


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_keys_without_a_live_file_are_found_together(form: int, count: int) -> None:
    files = _both([add(str(number)) for number in range(40)])[form]
    files = files.apply([add("new")], [add("3").key, add("5", vector=vector()).key])
    keys = [add(str(number)).key for number in range(count)]
    other = add("2", vector=vector()).key
    expected = {key for key in keys if key not in files}
    assert expected == ({add("3").key} if count > 3 else set())
    wanted = [*keys, other, add("absent").key, add("new").key]
    assert files.without(wanted) == {*expected, other, add("absent").key}


@pytest.mark.parametrize("form", [0, 1])
def test_a_commit_replaces_files_by_their_key(form: int) -> None:
    base = _both([add("a"), add("b", vector=vector()), add("c")])[form]
    files = base.apply([add("b", vector=vector(offset=9)), add("c", size=99)], [("a", None)])
    assert {item.key for item in files.adds()} == {
        ("b", vector().unique_id),
        ("b", vector(offset=9).unique_id),
        ("c", None),
    }
    replaced = files.get(("c", None))
    assert replaced is not None
    assert replaced.size == 99
    assert ("a", None) not in files
    assert files.get(("b", "no such vector")) is None
    assert len(base) == 3, "earlier versions stay as they are"
    assert files.by_path("a") is None
    found = base.by_path("b")
    assert found is not None
    assert found.key == ("b", vector().unique_id)


@pytest.mark.parametrize("form", [0, 1])
def test_removing_what_is_not_there_changes_nothing(form: int) -> None:
    base = _both([add("a")])[form]
    files = base.apply([], [("b", None), ("a", "another vector")])
    assert len(files) == 1
    assert base.apply([], []) is base


@pytest.mark.parametrize("spelling", ["/t/a%20b", "file:/t/a%20b", "file:///t/a%20b"])
@pytest.mark.parametrize("form", [0, 1])
def test_local_paths_have_three_spellings_for_one_file(spelling: str, form: int) -> None:
    base = _both([add("/t/a%20b"), add("x")])[form]
    assert (spelling, None) in base
    assert base.by_path(spelling) is not None
    assert len(base.apply([], [(spelling, None)])) == 1
    assert len(base.apply([add(spelling)], [])) == 2


def test_totals_follow_changes() -> None:
    for base in _both([add("a", size=1), add("b", size=2, vector=vector()), add("c", size=4)]):
        assert base.totals == Totals(3, 7, 1, 2)
        files = base.apply([add("d", size=8)], [("b", vector().unique_id)])
        assert files.totals == Totals(3, 13, 0, 0)


def test_columns_of_a_large_base_are_shared() -> None:
    base = files_table([add(f"f{i}") for i in range(1_000)])
    files = Files.of_table(base)
    assert files.table is base
    changed = files.apply([add("new")], [("f500", None)])
    chunk = changed.table["path"].chunk(0)
    assert chunk.buffers()[2].address == base["path"].chunk(0).buffers()[2].address
    paths = changed.table["path"].to_pylist()
    assert paths == [f"f{i}" for i in range(1_000) if i != 500] + ["new"]


def _key(chance: random.Random, names: list[str], vectors: list[DeletionVector | None]) -> FileKey:
    found = chance.choice(vectors)
    return chance.choice(names), None if found is None else found.unique_id


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("has_vectors", [False, True])
def test_many_commits_equal_a_dictionary(seed: int, form: int, has_vectors: bool) -> None:
    chance = random.Random(seed)
    names = [f"f{i}" for i in range(300)]
    start = {item.key: item for item in (add(name) for name in names[:100])}
    files = _both(list(start.values()))[form]
    expected: dict[FileKey, Add] = dict(start)
    vectors: list[DeletionVector | None] = [None, None, None, vector() if has_vectors else None]
    for step in range(60):
        gone = [_key(chance, names, vectors) for _ in range(chance.randrange(80))]
        added = [
            add(chance.choice(names), size=step, vector=chance.choice(vectors)) for _ in range(30)
        ]
        new = {item.key: item for item in added}
        files = files.apply(new.values(), gone)
        for key in gone:
            expected.pop(key, None)
        expected.update(new)
        if step % 7 == 0:  # what is asked in between must not change the answer
            assert len(files) == len(expected)
            assert files.totals == totals_of_adds(expected.values())
            for name in names[:40]:
                of_path = [item for item in expected.values() if item.path == name]
                found = files.by_path(name)
                assert found in of_path if of_path else found is None
        if step % 11 == 0:
            _ = files.table
    assert {item.key: item for item in files.adds()} == expected
    assert {item.key: item for item in adds_of(files.table)} == expected
    assert all(files.get(key) == item for key, item in expected.items())
    assert files.totals == totals_of_adds(expected.values())


@pytest.mark.parametrize("form", [0, 1])
def test_a_large_change_is_folded_into_a_new_base(form: int) -> None:
    base = _both([add(f"f{i}") for i in range(4_000)])[form]
    files = base.apply(
        [add(f"g{i}") for i in range(3_000)], [(f"f{i}", None) for i in range(3_500)]
    )
    assert len(files) == 3_500
    assert ("f3999", None) in files
    assert ("f0", None) not in files
    assert len(files.apply([], [("g7", None)])) == 3_499


def test_slices_are_not_too_many() -> None:
    base = Files.of_table(files_table([add(f"f{i}") for i in range(2_000)]))
    gone: list[FileKey] = [(f"f{i}", None) for i in range(0, 2_000, 2)]
    table: pa.Table = base.apply([], gone).table
    assert table.num_rows == 1_000
    assert table["path"].num_chunks < 200


def test_a_choice_of_files_is_that_from_all_of_them() -> None:
    chance = random.Random(5)
    for _ in range(30):
        count = chance.randrange(1, 30)
        adds = [
            add(f"f{at}", stats=None if at % 5 == 0 else f"s{at % 3}", size=at % 4)
            for at in range(count)
        ]
        table = files_table(adds)
        lazy = LazyStats([DecodedStats(table["stats"])])
        files = Files.of_columns(table.drop_columns("stats"), lazy)
        for step in range(chance.randrange(4)):
            path = f"f{chance.randrange(count)}"
            # A path of the checkpoint comes again in the tail, with another vector or none.
            again = add(path, stats="s1", size=2, vector=vector(offset=step) if step % 2 else None)
            removed = [] if step % 3 else [(f"f{chance.randrange(count)}", None)]
            files = files.apply([again] if step < 3 else [], removed)
        plain = Files.of(files.adds())

        def chosen(columns: FileColumns) -> pa.BooleanArray:
            sizes = pa.chunked_array(columns.column("size").iterchunks(), pa.int64())
            large = pc.greater(sizes.combine_chunks(), 1)
            of_large = columns.filter(large).column("stats").iterchunks()
            texts = pa.chunked_array(of_large, pa.string()).combine_chunks()
            return pc.replace_with_mask(large, large, pc.equal(texts, "s1").fill_null(False))

        assert pa.concat_tables(files.batches()).equals(Files.of(files.adds()).table)
        found = files.where(chosen)
        assert found.schema.equals(FILES_SCHEMA)
        assert adds_of(found) == [
            item for item in plain.adds() if item.size > 1 and item.stats == "s1"
        ]
        several = (["path"], ["size", "deletion_vector"], ["stats", "path"])
        found_columns = [files.columns(*names) for names in several]
        for names, columns in zip(several, found_columns):
            assert columns.equals(files.table.select(names))
        assert files.where(lambda columns: pa.array([True] * columns.num_rows)).equals(files.table)


def test_batches_are_the_table_without_keeping_its_statistics() -> None:
    """Few rows, many or none are gone; chunks of statistics and of columns end elsewhere."""
    texts = [None if at % 7 == 0 else f"s{at}" for at in range(600)]
    adds = [add(f"f{at}", stats=texts[at]) for at in range(600)]
    table = files_table(adds)
    parts = [table.slice(0, 250), table.slice(250)]
    columns = pa.concat_tables(part.drop_columns("stats") for part in parts)
    for gone in ([], [0], [599], range(3, 300), range(0, 600, 2), range(600)):
        stats = [DecodedStats(pa.chunked_array([texts[:100], texts[100:550]]))]
        lazy = LazyStats([*stats, DecodedStats(pa.chunked_array([texts[550:]]))])
        files = Files.of_columns(columns, lazy)
        files = files.apply([add("new")], [adds[at].key for at in gone])
        batches = list(files.batches())
        assert max(batch.num_rows for batch in batches) <= 450
        found = pa.concat_tables(batches)
        assert found.schema.equals(FILES_SCHEMA)
        assert found.equals(files.table)
        assert found.num_rows == 601 - len(gone)
        assert pa.concat_tables(files.batches()).equals(found)  # what is decoded by now
