"""When the version of a log's first checkpoint was committed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from txlake.commit.log_cleanup import checkpoint_time_ms
from txlake.ports import StoredObject


def listed(*names: str) -> Iterator[StoredObject]:
    """The files of a log, each modified a second after the one before; more isn't taken."""
    for number, name in enumerate(names):
        version, _, rest = name.partition(".")
        yield StoredObject(f"_delta_log/{int(version):020}.{rest}", 1, 1_000 * number)
    raise AssertionError("listed further than needed")


PARTS = [f"2.checkpoint.{part:010}.0000000002.parquet" for part in (1, 2)]


@pytest.mark.parametrize(
    ("names", "time_ms"),
    [
        (["0.json", "1.checkpoint.parquet", "1.json"], 2_000),
        (["1.checkpoint.parquet", "2.json"], 0),  # its commit is gone
        (["1.checkpoint.parquet", "1.crc", "1.json"], 2_000),
        ([PARTS[0], "2.json", "3.checkpoint.parquet", "3.json"], 3_000),  # a part is missing
        ([*PARTS, "2.json"], 2_000),
    ],
)
def test_the_first_complete_checkpoint_counts(names: list[str], time_ms: int) -> None:
    assert checkpoint_time_ms(listed(*names)) == time_ms


def test_a_log_may_end_with_its_checkpoint() -> None:
    whole = list(zip(range(3), listed("0.json", "1.json", "2.checkpoint.parquet")))
    assert checkpoint_time_ms(item for _, item in whole) == 2_000
    assert checkpoint_time_ms(item for _, item in whole[:2]) is None
