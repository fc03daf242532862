"""The cases of concurrency that users of Delta know, asked of `txlake.Log`.

Each case: the table's files, what our transaction read, what others committed meanwhile, what ours
commits, and which exception it gets. Where docs/how-a-commit-works.md differs from Delta (a
transaction that changes nothing never conflicts, a rewrite changes no row), it decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.lake.log_tables import Line, add, moved, new_log, paths, remove, settings, table
from txlake.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    Conflict,
    MetadataChangedException,
    ProtocolChangedException,
)
from txlake.lake.log import Log

WHOLE = None
NOT_BLIND = "p = 'nowhere'"  # a read that makes the others' commits not blind


@dataclass(frozen=True, kw_only=True)
class Case:
    files: Sequence[Line] = ()
    reads: Sequence[str | None] = ()
    theirs: Sequence[Line] = ()
    they_read: bool = True
    ours: Sequence[Line]
    error: type[Conflict] | None = None
    left: Sequence[str] = ()


def of(path: str) -> Line:
    """A file of the partition that its path names."""
    return add(path, p=path[2])


A1, B1, C1 = of("p=1/a"), of("p=1/b"), of("p=1/c")
C2, D2 = of("p=2/c"), of("p=2/d")
E3, F3 = of("p=3/e"), of("p=3/f")
G4 = of("p=4/g")


def gone(line: Line) -> Line:
    return remove(str(line["add"]["path"]))


CASES: dict[str, Case] = {
    "a read and an append against an append": Case(
        reads=[WHOLE], theirs=[A1], ours=[B1], error=ConcurrentAppendException
    ),
    "a blind append against any change": Case(
        files=[A1], theirs=[gone(A1), B1], ours=[C1], left=["p=1/b", "p=1/c"]
    ),
    "a read of one partition, a change of another": Case(
        files=[A1, E3],
        reads=["p = '3'"],
        theirs=[B1],
        ours=[C2, gone(E3)],
        left=["p=1/a", "p=1/b", "p=2/c"],
    ),
    "a read of a list of partitions, a rewrite of another": Case(
        files=[A1, D2],
        reads=["p IN ('1')"],
        theirs=[C2, gone(D2)],
        ours=[E3, F3],
        left=["p=1/a", "p=2/c", "p=3/e", "p=3/f"],
    ),
    "a read partition that was appended to": Case(
        files=[A1, D2, E3],
        reads=["p = '1'"],
        theirs=[B1],
        ours=[C2, E3],
        error=ConcurrentAppendException,
    ),
    "the whole table, a rewrite of any partition": Case(
        files=[A1, D2],
        reads=[WHOLE, "p = '1'"],
        theirs=[C2, gone(D2)],
        ours=[E3, F3],
        error=ConcurrentAppendException,
    ),
    "a partition read of which a file went": Case(
        files=[A1, B1],
        reads=["p = '1'"],
        theirs=[gone(A1)],
        ours=[E3],
        error=ConcurrentDeleteReadException,
    ),
    "a range read that an append falls into": Case(
        files=[A1],
        reads=["p >= '1' OR id > 5"],
        theirs=[C2],
        ours=[E3],
        error=ConcurrentAppendException,
    ),
    "two removes of one file": Case(
        files=[B1],
        reads=["p = '2'"],
        theirs=[gone(B1)],
        ours=[gone(B1)],
        error=ConcurrentDeleteDeleteException,
    ),
    "two removes of one file, and nothing read": Case(
        files=[B1, C2],
        theirs=[gone(B1)],
        they_read=False,
        ours=[gone(B1)],
        error=ConcurrentDeleteDeleteException,
    ),
    "removes of two files, and nothing read": Case(
        files=[B1, C2],
        theirs=[gone(C2)],
        they_read=False,
        ours=[gone(B1)],
        error=ConcurrentDeleteReadException,
    ),
    "a remove that another made beside one more, and nothing read": Case(
        files=[B1, C2],
        theirs=[gone(B1), gone(C2)],
        they_read=False,
        ours=[gone(B1)],
        error=ConcurrentDeleteReadException,
    ),
    "the whole table, an append and a remove": Case(
        files=[A1, C2],
        reads=[WHOLE],
        theirs=[gone(C2), B1],
        ours=[D2],
        error=ConcurrentAppendException,
    ),
    "the whole table, a remove": Case(
        files=[A1, C2],
        reads=[WHOLE],
        theirs=[gone(A1)],
        ours=[B1],
        error=ConcurrentDeleteReadException,
    ),
    "two replaces of an empty range": Case(
        files=[A1], reads=["p >= '2'"], theirs=[E3], ours=[C2], error=ConcurrentAppendException
    ),
    "two replaces of ranges apart": Case(
        files=[A1], reads=["p > '3'"], theirs=[C2], ours=[G4], left=["p=1/a", "p=2/c", "p=4/g"]
    ),
    "two replaces whose ranges meet": Case(
        files=[A1, G4],
        reads=["p >= '2'"],
        theirs=[gone(A1), C2],
        ours=[gone(G4), E3],
        error=ConcurrentAppendException,
    ),
    "two replaces of one partition": Case(
        files=[A1],
        reads=["p = '1'"],
        theirs=[gone(A1), B1],
        ours=[gone(A1), C1],
        error=ConcurrentAppendException,
    ),
    "two replaces that share a partition": Case(
        files=[A1, C2, E3],
        reads=["p = '3' OR p = '2'"],
        theirs=[gone(A1), gone(E3), B1],
        ours=[gone(C2), gone(E3), D2],
        error=ConcurrentDeleteReadException,
    ),
    "a predicate of a partition and of data": Case(
        files=[A1, E3],
        reads=["p = '1' OR id > 2019"],
        theirs=[C2],
        ours=[gone(A1)],
        error=ConcurrentAppendException,
    ),
    "two reads, the second one concerned": Case(
        files=[A1, E3],
        reads=["p = '1'", "p > '1' AND p < '3'"],
        theirs=[C2],
        ours=[gone(A1)],
        error=ConcurrentAppendException,
    ),
    "a compaction against an append": Case(
        files=[A1, B1],
        reads=[WHOLE],
        theirs=[E3],
        ours=[moved(gone(A1)), moved(gone(B1)), moved(C1)],
        left=["p=1/c", "p=3/e"],
    ),
    "a compaction against a delete": Case(
        files=[A1, B1],
        reads=[WHOLE],
        theirs=[gone(A1)],
        ours=[moved(gone(A1)), moved(gone(B1)), moved(C1)],
        error=ConcurrentDeleteDeleteException,
    ),
    "an insert that read the table against a compaction": Case(
        files=[A1, B1],
        reads=[WHOLE],
        theirs=[moved(gone(A1)), moved(gone(B1)), moved(C1)],
        ours=[E3],
        left=["p=1/c", "p=3/e"],
    ),
    "an update against a compaction of its file": Case(
        files=[A1, B1],
        reads=["p = '1'"],
        theirs=[moved(gone(A1)), moved(gone(B1)), moved(C1)],
        ours=[gone(A1), D2],
        error=ConcurrentDeleteReadException,
    ),
    "nothing written, whatever came": Case(
        files=[A1], reads=["p = '1'"], theirs=[gone(A1), B1], ours=[], left=["p=1/b"]
    ),
    "one application id": Case(
        theirs=[{"txn": {"appId": "t1", "version": 1}}],
        ours=[{"txn": {"appId": "t1", "version": 1}}, A1],
        error=ConcurrentTransactionException,
    ),
    "two application ids": Case(
        theirs=[{"txn": {"appId": "t2", "version": 1}}],
        ours=[{"txn": {"appId": "t1", "version": 1}}, A1],
        left=["p=1/a"],
    ),
    "an append against a change of the schema": Case(
        theirs=[settings("id:long", "p:string", "new:long", by=("p",))],
        ours=[A1],
        error=MetadataChangedException,
    ),
    "two upgrades": Case(
        theirs=[{"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}}],
        ours=[{"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}}],
        error=ProtocolChangedException,
    ),
    "an append against an upgrade": Case(
        theirs=[{"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}}],
        ours=[A1],
        left=["p=1/a"],
    ),
    "blind appends don't disturb who writes": Case(
        files=[A1],
        reads=["p = '1'"],
        theirs=[B1],
        they_read=False,
        ours=[gone(A1)],
        left=["p=1/b"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    case = CASES[name]
    log = table(*case.files, by=("p",))
    ours = log.start_transaction()
    for condition in case.reads:
        ours.read(condition)
    others = log.start_transaction()
    if case.they_read:
        others.read(NOT_BLIND)
    others.commit(case.theirs, operation="TRUNCATE")
    if case.error is None:
        ours.commit(case.ours)
        assert paths(log) == sorted(case.left)
    else:
        with pytest.raises(case.error) as caught:
            ours.commit(case.ours)
        assert type(caught.value) is case.error
        evidence = caught.value.evidence
        assert evidence is not None
        assert (evidence.winning_version, evidence.winning_operation) == (1, "TRUNCATE")
        assert evidence.table in str(caught.value)


def test_a_change_after_ours_began_counts_though_we_read_later() -> None:
    log = table(A1, E3, by=("p",))
    ours = log.start_transaction()
    others = log.start_transaction()
    others.read()
    others.commit([C2])
    ours.read("p = '1'")
    ours.read()
    with pytest.raises(ConcurrentAppendException):
        ours.commit([gone(A1)])


NESTED = ("id:long", "a:string", "b:string")


def nested(path: str) -> Line:
    """A file of `a=1/b=2`-like partitions."""
    a, b = (part.partition("=")[2] for part in path.split("/")[:2])
    return add(path, a=a, b=b)


@pytest.mark.parametrize(
    ("condition", "theirs", "error"),
    [
        ("a = '1' AND b = '1'", [nested("a=1/b=2/b")], None),
        ("a = '1'", [nested("a=2/b=1/c")], None),
        ("a = '1'", [remove("a=1/b=1/a")], ConcurrentDeleteReadException),
        (None, [nested("a=1/b=2/b")], ConcurrentAppendException),
        ("a >= '1' OR b > '1'", [nested("a=1/b=2/b")], ConcurrentAppendException),
    ],
)
def test_nested_partitions(
    condition: str | None, theirs: list[Line], error: type[Conflict] | None
) -> None:
    log = table(nested("a=1/b=1/a"), columns=NESTED, by=("a", "b"))
    ours = log.start_transaction()
    ours.read(condition)
    others = log.start_transaction()
    others.read("a = 'nowhere'")
    others.commit(theirs)
    if error is None:
        assert ours.commit([nested("a=3/b=1/d")]).rebased_over == (1,)
    else:
        with pytest.raises(error):
            ours.commit([nested("a=3/b=1/d")])


@pytest.mark.parametrize("column", ["p", "partitionValues"])
@pytest.mark.parametrize(
    ("theirs", "error"),
    [
        ("append in it", ConcurrentAppendException),
        ("append beside it", None),
        ("delete in it", ConcurrentDeleteDeleteException),
        ("delete beside it", None),
    ],
)
def test_dynamic_partition_overwrite(
    column: str, theirs: str, error: type[Conflict] | None
) -> None:
    def file(path: str, value: str) -> Line:
        return add(path, None, **{column: value})

    log = table(
        file("a", "0"), file("b", "1"), columns=(f"{column}:integer", "value:integer"), by=(column,)
    )
    ours = log.start_transaction()
    found = ours.read(f"{column} = 0", files=False).column("path").to_pylist()
    assert found == ["a"]
    changes: dict[str, Line] = {
        "append in it": file("y", "0"),
        "append beside it": file("y", "1"),
        "delete in it": remove("a"),
        "delete beside it": remove("b"),
    }
    others = log.start_transaction()
    others.read_files(["b"])
    others.commit([changes[theirs]])
    commit = [*(remove(path) for path in found), file("x", "0")]
    if error is None:
        ours.commit(commit)
    else:
        with pytest.raises(error):
            ours.commit(commit)


def test_partition_values_are_compared_by_value() -> None:
    instant = "2000-01-01T12:00:00.000000Z"
    log = table(
        add("a", ts="2000-01-01 12:00:00"),
        add("b", ts="2000-02-02 12:00:00"),
        columns=("id:long", "ts:timestamp"),
        by=("ts",),
    )
    assert paths(log, f"ts = TIMESTAMP '{instant}'") == ["a"]
    ours = log.start_transaction()
    ours.read(f"ts = TIMESTAMP '{instant}'")
    others = log.start_transaction()
    others.read_files(["b"])
    others.commit([add("c", ts=instant)])
    with pytest.raises(ConcurrentAppendException):
        ours.commit([add("d", ts="2000-03-03 12:00:00")])


def test_two_creators() -> None:
    log = new_log()
    first, second = log.start_transaction(), log.start_transaction()
    first.commit([settings("id:long")])
    with pytest.raises(ProtocolChangedException):
        second.commit([settings("id:long")])


LEVELS = ("serializable", "write_serializable", "snapshot")


def outcome(log: Log, level: str, condition: str, theirs: Line, ours: Sequence[Line]) -> str:
    """The exception's name, or `fine`."""
    transaction = log.start_transaction(isolation=level)
    transaction.read(condition)
    log.start_transaction().commit([theirs])
    try:
        transaction.commit(ours)
    except Conflict as error:
        return type(error).__name__
    return "fine"


@pytest.mark.parametrize(
    ("level", "expected"),
    list(zip(LEVELS, ("ConcurrentAppendException", "fine", "fine"), strict=True)),
)
def test_an_update_against_an_insert_that_commits_first(level: str, expected: str) -> None:
    log = table(add("a", (1, 5)))
    found = outcome(log, level, "id = 3", add("b", (1, 5)), [remove("a"), add("a2", (1, 5))])
    assert found == expected


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("serializable", "ConcurrentDeleteReadException"),
        ("write_serializable", "ConcurrentDeleteReadException"),
        ("snapshot", "fine"),
    ],
)
def test_an_insert_that_read_what_was_deleted(level: str, expected: str) -> None:
    log = table(add("a", (1, 5)), add("b", (6, 9)))
    assert outcome(log, level, "id = 3", remove("a"), [add("c")]) == expected


@pytest.mark.parametrize("level", LEVELS)
def test_what_statistics_tell_apart(level: str) -> None:
    log = table(add("a", (1, 5)), add("b", (6, 9)))
    assert outcome(log, level, "id = 3", remove("b"), [remove("a")]) == "fine"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "after",
    [
        settings("id:long", "p:string"),
        settings("id:string", "p:string", by=("p",)),
        settings("id:long!", "p:string", by=("p",)),
        settings("id:long", "p:string", by=("p",), delta__constraints__c="id > 0"),
    ],
    ids=["partitioning", "type", "not null", "constraint"],
)
def test_an_append_under_settings_that_ours_replaces(after: Line, level: str) -> None:
    log = table(by=("p",))
    ours = log.start_transaction(isolation=level)
    log.start_transaction().commit([add("a", (-5, 5), p="1")])
    with pytest.raises(ConcurrentAppendException, match="added files that don't fit"):
        ours.commit([after], operation="SET TBLPROPERTIES")
    assert log.snapshot().version == 1


def test_an_overwrite_of_the_schema_against_an_append_under_snapshot() -> None:
    log = table(add("a", p="1"), by=("p",))
    ours = log.start_transaction(isolation="snapshot")
    ours.read()
    log.start_transaction().commit([add("b", p="1")])
    with pytest.raises(ConcurrentAppendException, match="partitioned by other columns"):
        ours.commit([settings("id:string"), remove("a"), add("c")])


def test_a_new_column_against_an_append() -> None:
    log = table()
    ours = log.start_transaction()
    log.start_transaction().commit([add("a")])
    committed = ours.commit([settings("id:long", "p:string", "q:long")])
    assert committed.rebased_over == (1,)


def test_a_deletion_vector_is_a_delete() -> None:
    log = new_log()
    log.start_transaction().commit(
        [
            settings("id:long", delta__enableDeletionVectors="true"),
            add("a", (1, 5)),
            add("b", (6, 9)),
        ]
    )
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 1,
        "sizeInBytes": 36,
        "cardinality": 1,
    }
    for condition, error in (("id = 3", ConcurrentDeleteReadException), ("id = 7", None)):
        base = log.snapshot().version
        ours = log.start_transaction()
        ours.read(condition)
        current = {row["path"]: row for row in log.snapshot().files().to_pylist()}["a"]
        cardinality = 1 + (current["deletion_vector"] or {"cardinality": 0})["cardinality"]
        file = add("a", (1, 5))
        file["add"]["deletionVector"] = {
            **vector,
            "offset": cardinality,
            "cardinality": cardinality,
        }
        others = log.start_transaction()
        others.read("id = 1")
        others.commit([remove("a"), file], operation="DELETE")
        if error is None:
            assert ours.commit([add("c")]).version == base + 2
        else:
            with pytest.raises(error):
                ours.commit([add("c")])


def test_many_winners_are_checked_in_order() -> None:
    log = table(by=("p",))
    ours = log.start_transaction()
    ours.read("p = '9'")
    for number in range(20):
        others = log.start_transaction()
        others.read(NOT_BLIND)
        others.commit([add(f"f{number}", p=str(number % 5))])
    committed = ours.commit([add("mine", p="9")])
    assert committed.version == 21
    assert committed.rebased_over == tuple(range(1, 21))


def test_new_statistics_of_a_file_give_way_and_anything_else_does_not() -> None:
    log = new_log()
    log.start_transaction().commit([settings("id:long"), add("a"), add("b")])
    told = moved(add("a", (1, 5)))
    again, tagged = log.start_transaction(), log.start_transaction()
    both = log.start_transaction()
    others = log.start_transaction()
    others.read("id = 1")
    others.commit([remove("a")], operation="DELETE")
    assert again.commit([told], operation="COMPUTE STATS").version == 1
    assert both.commit([told, moved(add("b", (6, 9)))], operation="COMPUTE STATS").version == 2
    assert paths(log) == ["b"]
    told["add"]["tags"] = {"k": "v"}
    with pytest.raises(ConcurrentDeleteDeleteException):
        tagged.commit([told], operation="COMPUTE STATS")
