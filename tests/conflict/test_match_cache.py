"""Files judged by partition values and statistics: each once, many at one go, doubt counts."""

from __future__ import annotations

import json

import msgspec
import pyarrow as pa
import pytest

from tests.conflict.cases import SCHEMA, TABLE, add, gone, read, winner
from txlake.conflict import match_cache
from txlake.conflict.check import check_all, check_selects
from txlake.conflict.context import CheckContext
from txlake.conflict.evidence import NoConflict
from txlake.conflict.footprint import Footprint, ReadKind
from txlake.conflict.levels import Level
from txlake.conflict.match_cache import MatchCache
from txlake.log.skipping import may_match

NEAR, FAR = add("near", "1", (1, 10)), add("far", "1", (50, 60))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files each evaluation was given."""
    counts: list[int] = []

    def counting(predicate: object, files: pa.Table, *rest: object) -> pa.BooleanArray:
        counts.append(files.num_rows)
        return may_match(predicate, files, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(match_cache, "may_match", counting)
    return counts


def test_a_hundred_winners_are_judged_at_one_go(judged: list[int]) -> None:
    context = CheckContext(base=TABLE, metadata=TABLE.metadata, protocol=TABLE.protocol)
    ours = Footprint(read_version=5, added=(add("ours"),), reads=(read("id = 5"), read("id = 6")))
    winners = [
        winner(6 + number, added=(add(f"w{number}", "1", (50, 60)),), removed=(gone(add("x")),))
        for number in range(100)
    ]
    assert isinstance(check_all(ours, winners, context), NoConflict)
    assert judged == [100, 100]  # a time for each read


def test_a_select_is_asked_about_a_hundred_winners_at_one_go(judged: list[int]) -> None:
    context = CheckContext(
        base=TABLE, metadata=TABLE.metadata, protocol=TABLE.protocol, level=Level.SERIALIZABLE
    )
    select = read("id = 5", ReadKind.PLAIN)
    ours = Footprint(read_version=5, added=(add("ours"),), reads=(select,))
    winners = [
        winner(6 + number, added=(add(f"w{number}", "1", (50, 60)),)) for number in range(100)
    ]
    assert check_selects(ours, winners, context) is None
    assert judged == [100]


def test_a_winner_of_many_files_is_judged_when_it_is_asked_about(judged: list[int]) -> None:
    context = CheckContext(base=TABLE, metadata=TABLE.metadata, protocol=TABLE.protocol)
    ours = Footprint(read_version=5, added=(add("ours"),), reads=(read("id = 5"),))
    large = tuple(add(f"l{number}", "1", (50, 60)) for number in range(200))
    winners = [
        winner(6, added=(add("w", "1", (50, 60)),)),
        winner(7, added=large, is_blind_append=True),
    ]
    assert isinstance(check_all(ours, winners, context), NoConflict)
    assert judged == [1]


def test_a_file_is_judged_once_and_anew_when_it_changed(judged: list[int]) -> None:
    known, five = MatchCache(), read("id = 5")
    assert known.of(five, [NEAR, FAR], TABLE) == [True, False]
    assert known.of(five, [FAR, NEAR], TABLE) == [False, True]
    assert known.of(five, [msgspec.structs.replace(NEAR)], TABLE) == [True]
    assert judged == [2]
    assert known.of(five, [msgspec.structs.replace(FAR, stats=NEAR.stats)], TABLE) == [True]
    assert judged == [2, 1]


def test_reads_are_judged_apart() -> None:
    known = MatchCache()
    assert known.of(read("id = 5"), [NEAR, FAR], TABLE) == [True, False]
    assert known.of(read("id = 55"), [NEAR, FAR], TABLE) == [False, True]
    assert known.of(read(), [NEAR, FAR], TABLE) == [True, True]


def test_a_file_that_cant_be_judged_may_match_and_harms_no_other() -> None:
    damaged = add("damaged", "1", (50, 60))
    damaged = msgspec.structs.replace(damaged, partition_values={"p": "no number"})
    text = json.dumps(SCHEMA).replace('"string"', '"integer"')
    numbers = msgspec.structs.replace(TABLE.metadata, schema_string=text)
    base = TABLE.apply([numbers])
    one = read("id = 5 AND p = '1'")
    assert MatchCache().of(one, [NEAR, damaged, FAR], base) == [True, True, False]
