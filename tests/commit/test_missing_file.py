"""What is said of a data file that VACUUM removed: the version, the moment, what can be read."""

from __future__ import annotations

import pytest

from tests.commit.log_of import HOUR, LogOf, add, remove
from txlake.commit.missing_file import explain_missing_file
from txlake.protocol.actions import Action, Cdc, CommitInfo

VACUUM = CommitInfo({"operation": "VACUUM END"})
CANNOT = "t: {} can't be read any more: data file {!r}, which version {} replaced, is gone"


def table(*commits: tuple[Action, ...], there: tuple[str, ...] = ("c",)) -> LogOf:
    """A log of these commits after the first, which adds a and x; an hour apart."""
    made = LogOf()
    made.create(add("a"), add("x"))
    for version, actions in enumerate(commits, 1):
        made.commit(version, *actions, after_ms=HOUR)
    for path in (*there, "x"):
        made.store.files[path] = (b"1", 0)
    return made


def reason(made: LogOf, path: str, *versions: int) -> str | None:
    return explain_missing_file(made.open(), path, versions)


def test_the_version_the_moment_and_what_can_be_read() -> None:
    made = table((remove("a"), add("b")), (remove("b"), add("c")), (VACUUM,))
    assert reason(made, "a", 0, 2, 3) == (
        CANNOT.format("version 0", "a", 1)
        + ": VACUUM removed it at 2024-10-04 03:00:01 UTC. Versions from 2 on can be read"
    )
    assert reason(made, "b", 1) == (
        CANNOT.format("version 1", "b", 2)
        + ": VACUUM removed it at 2024-10-04 03:00:01 UTC. Versions from 2 on can be read"
    )


def test_a_file_that_is_there_makes_an_older_version_readable() -> None:
    made = table((remove("a"), add("b")), (remove("b"), add("c")), (VACUUM,), there=("b", "c"))
    found = reason(made, "a", 0)
    assert found is not None
    assert found.endswith("Versions from 1 on can be read")


SEVERAL = "versions before 2"


@pytest.mark.parametrize(
    ("versions", "named"),
    [((), SEVERAL), ((0, 1), SEVERAL), ((2,), SEVERAL), ((1, 9), "version 1")],
)
def test_the_version_is_named_where_it_is_known(versions: tuple[int, ...], named: str) -> None:
    made = table((add("b"),), (remove("a"), add("c")), (VACUUM,), there=("b", "c"))
    found = reason(made, "a", *versions)
    assert found is not None
    assert found.startswith(CANNOT.format(named, "a", 2))


def test_a_vacuum_before_the_file_was_replaced_did_not_remove_it() -> None:
    made = table((VACUUM,), (remove("a"), add("c")))
    found = reason(made, "a", 0)
    assert found is not None
    assert "is gone (VACUUM removes files that no newer version needs). Versions from 2 on" in found


def test_a_file_of_the_newest_version_should_be_there() -> None:
    made = table((VACUUM,))
    assert reason(made, "x") is None
    assert reason(made, "never") is None


def test_a_file_that_is_listed_again_is_not_replaced() -> None:
    made = table((remove("a"), add("a")), (VACUUM,))
    assert reason(made, "a") is None


def test_a_change_data_file() -> None:
    change = Cdc(path="_change_data/c%20d", partition_values={}, size=1, data_change=False)
    made = table((remove("a"), add("c"), change), (VACUUM,))
    assert reason(made, "_change_data/c d") == (
        "t: the changes of version 1 can't be read any more: change data file "
        "'_change_data/c d' is gone: VACUUM removed it at 2024-10-04 02:00:01 UTC. Read the "
        "changes from a later version on"
    )


def test_a_log_that_can_not_be_read_says_nothing() -> None:
    made = table((remove("a"), add("c")), (VACUUM,))
    made.store.failing.update(made.store.files)
    assert reason(made, "a", 0) is None
