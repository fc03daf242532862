from __future__ import annotations

import pytest

from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.segment import Listing, choose_segment


def _listing(*names: str) -> Listing:
    return Listing.of((_name(name), 1, 100 + at) for at, name in enumerate(names))


def _name(short: str) -> str:
    """`3.json` as the log names it: versions and parts padded."""
    if short.startswith("_"):
        return f"_delta_log/{short}"
    version, _, rest = short.partition(".")
    parts = rest.split(".")
    if rest.startswith("checkpoint.") and parts[1].isdigit():
        rest = f"checkpoint.{int(parts[1]):010d}.{int(parts[2]):010d}.parquet"
    elif rest.endswith("compacted.json"):
        rest = f"{int(parts[0]):020d}.compacted.json"
    return f"_delta_log/{int(version):020d}.{rest}"


def _short(path: str) -> str:
    name = path.removeprefix("_delta_log/")
    return ".".join(part.lstrip("0") or "0" if part.isdigit() else part for part in name.split("."))


C = "checkpoint.parquet"


@pytest.mark.parametrize(
    ("names", "version", "checkpoint", "deltas"),
    [
        pytest.param(["0.json", "1.json"], None, [], ["0.json", "1.json"], id="commits alone"),
        pytest.param(["0.json", "1.json"], 0, [], ["0.json"], id="an older version"),
        pytest.param([f"2.{C}", "2.json", "3.json"], None, [f"2.{C}"], ["3.json"], id="classic"),
        pytest.param([f"2.{C}"], None, [f"2.{C}"], [], id="a checkpoint alone"),
        pytest.param(
            ["0.json", "1.json", f"1.{C}", "2.json"], 0, [], ["0.json"], id="no newer checkpoint"
        ),
        pytest.param(
            [f"1.{C}", f"3.{C}", "4.json"], None, [f"3.{C}"], ["4.json"], id="the newest checkpoint"
        ),
        pytest.param(
            ["0.json", "1.json", "1.checkpoint.1.2.parquet", "1.checkpoint.2.2.parquet"],
            None,
            ["1.checkpoint.1.2.parquet", "1.checkpoint.2.2.parquet"],
            [],
            id="all parts",
        ),
        pytest.param(
            ["0.json", "1.json", "1.checkpoint.1.2.parquet"],
            None,
            [],
            ["0.json", "1.json"],
            id="a part is missing",
        ),
        pytest.param(
            [f"0.{C}", "1.checkpoint.1.2.parquet", "1.checkpoint.2.3.parquet", "1.json"],
            None,
            [f"0.{C}"],
            ["1.json"],
            id="parts of two attempts are no checkpoint",
        ),
        pytest.param(
            ["1.checkpoint.abc-1.json", "2.json"],
            None,
            ["1.checkpoint.abc-1.json"],
            ["2.json"],
            id="V2",
        ),
        pytest.param(
            [f"{v}.json" for v in range(6)] + ["1.4.compacted.json"],
            None,
            [],
            ["0.json", "1.4.compacted.json", "5.json"],
            id="a compaction",
        ),
        pytest.param(
            [f"{v}.json" for v in range(6)] + ["1.2.compacted.json", "1.4.compacted.json"],
            None,
            [],
            ["0.json", "1.4.compacted.json", "5.json"],
            id="the longest compaction",
        ),
        pytest.param(
            [f"{v}.json" for v in range(6)] + ["1.4.compacted.json"],
            3,
            [],
            ["0.json", "1.json", "2.json", "3.json"],
            id="a compaction beyond the version",
        ),
        pytest.param(
            [f"2.{C}", "3.json", "4.json", "1.4.compacted.json"],
            None,
            [f"2.{C}"],
            ["3.json", "4.json"],
            id="a compaction from before the checkpoint",
        ),
        pytest.param(
            ["0.json", "1.2.compacted.json", "3.json"],
            None,
            [],
            ["0.json", "1.2.compacted.json", "3.json"],
            id="a compaction whose commits are gone",
        ),
    ],
)
def test_chooses(
    names: list[str], version: int | None, checkpoint: list[str], deltas: list[str]
) -> None:
    segment = choose_segment(_listing(*names), table="t", version=version)
    paths = segment.checkpoint.paths if segment.checkpoint else ()
    assert [_short(path) for path in paths] == checkpoint
    assert [_short(entry.path) for entry in segment.deltas] == deltas


@pytest.mark.parametrize(
    ("names", "version", "missing"),
    [
        pytest.param(["0.json", "2.json"], None, 1, id="a gap"),
        pytest.param([f"2.{C}", "4.json"], None, 3, id="a gap after the checkpoint"),
        pytest.param(["3.json"], None, 0, id="no checkpoint and no beginning"),
        pytest.param([f"2.{C}", "3.json", "5.json"], 5, 4, id="an asked version after a gap"),
        pytest.param(["5.json", "5.checkpoint.1.2.parquet"], None, 0, id="half a checkpoint"),
    ],
)
def test_a_gap_names_the_missing_commit(
    names: list[str], version: int | None, missing: int
) -> None:
    with pytest.raises(CorruptTable, match=f"^t: version .*_delta_log/{missing:020d}.json is miss"):
        choose_segment(_listing(*names), table="t", version=version)


def test_a_gap_before_the_checkpoint_or_after_the_version_harms_nobody() -> None:
    listing = _listing("0.json", f"2.{C}", "3.json", "5.json")
    assert choose_segment(listing, table="t", version=3).version == 3
    assert choose_segment(listing, table="t", version=0).version == 0


def test_an_incomplete_checkpoint_is_told() -> None:
    with pytest.raises(CorruptTable, match=r"incomplete checkpoint: only .*0000000001\.0000000002"):
        choose_segment(_listing("5.json", "5.checkpoint.1.2.parquet"), table="t")


@pytest.mark.parametrize(
    ("version", "says"),
    [
        (9, "version 9 doesn't exist; the latest version is 5. Ask for a version from 3 to 5"),
        (-1, "versions start at 0"),
        (1, "version 1 was cleaned up; the log can rebuild versions 3 to 5"),
    ],
)
def test_versions_that_are_not_there(version: int, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        choose_segment(_listing("2.json", f"3.{C}", "4.json", "5.json"), table="t", version=version)


def test_unusable_checkpoints_are_passed_over() -> None:
    listing = _listing(f"1.{C}", "2.json", f"2.{C}", "3.json")
    segment = choose_segment(listing, table="t", unusable=frozenset({(_name(f"2.{C}"),)}))
    assert segment.checkpoint is not None
    assert segment.checkpoint.version == 1
    assert [_short(entry.path) for entry in segment.deltas] == ["2.json", "3.json"]


def test_other_files_are_ignored() -> None:
    listing = _listing("0.json", "0.crc", "1.json", "0.json.tmp", "_last_checkpoint")
    segment = choose_segment(listing, table="t")
    assert segment.version == 1
    assert segment.checksum is None
    older = choose_segment(listing, table="t", version=0)
    assert older.checksum is not None
    assert older.newest is not None
    assert older.newest.path == _name("0.json")
