"""The machine: a few programs have no unknown difference, and a difference is found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.delta_spark import delta_jars
from tests.differential.comparing import Difference, row_texts, rows_differ
from tests.differential.known import KNOWN
from tests.differential.logs import FEED
from tests.differential.machine import Machine
from tests.differential.programs import Program
from tests.differential.shrinking import shrink
from tests.differential.steps import Step, fill_placeholders
from tests.pages import ROOT, page, table

# The seed of a program whose steps nearly all succeed.
SEED, STEPS_MAX = 204, 5


@pytest.mark.broad
@pytest.mark.timeout(900)
def test_programs_differ_in_nothing_unknown() -> None:
    """Run the first steps of one program; `make diff` runs 200 programs."""
    delta_jars()
    asked = ("--seeds", "1", "--from", str(SEED), "--steps", str(STEPS_MAX))
    command = [sys.executable, "-m", "tests.differential", *asked]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=840)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert "1 programs" in ran.stdout


def test_known_differences_match_the_docs() -> None:
    said = [cells[0] for cells in table(page("docs/differences-from-delta-spark.md"), "difference")]
    names = [one.name for one in KNOWN]
    assert len(set(names)) == len(names)
    assert set(names) <= set(said)


@dataclass
class Frame:
    """The result of a fake engine's statement."""

    rows: list[tuple[Any, ...]]
    type: str = "integer"

    def collect(self) -> list[tuple[Any, ...]]:
        return self.rows

    @property
    def schema(self) -> Any:
        return self

    def jsonValue(self) -> Any:
        item = {"name": "n", "type": self.type, "nullable": True, "metadata": {}}
        return {"fields": [item]}


class Feed(Frame):
    """A fake engine's change data feed."""

    def drop(self, name: str) -> Any:
        assert name == "_commit_timestamp"
        return self


@dataclass
class Fake:
    """An engine whose tables are lists, and whose only statement adds a number.

    Attributes:
        displayed: returns the rows that a query gives, for the table's rows.
        refused: the numbers that it refuses.
        feed: returns the rows of the change feed, for the added rows.
    """

    name: str
    displayed: Callable[[list[int]], list[int]] = lambda rows: rows
    operation: str = "WRITE"
    refused: tuple[int, ...] = ()
    property: str = "1"
    type: str = "integer"
    feed: Callable[[list[int]], list[int]] = lambda rows: rows
    tables: dict[str, list[int]] = field(default_factory=dict)

    def frame(self, text: str) -> Any:
        word, _, rest = text.partition(" ")
        folder = text.split("`")[1]
        if word == "SELECT":
            # A fake engine reads what the folder's owner wrote.
            rows = json.loads((Path(folder) / "rows").read_text())
            return Frame([(row,) for row in self.displayed(rows)], self.type)
        number = int(rest.split()[0])
        if number in self.refused:
            raise ValueError(f"{number} is refused")
        rows = self.tables.setdefault(folder, [])
        log = Path(folder) / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        metadata = {
            "schemaString": json.dumps(
                {"fields": [{"name": "n", "type": "integer", "nullable": True, "metadata": {}}]}
            ),
            "partitionColumns": [],
            "configuration": {"p": self.property, FEED: "true"},
        }
        rows.append(number)
        metrics = {"numOutputRows": "1", "numOutputBytes": str(len(self.name))}
        actions: list[Any] = [
            {"commitInfo": {"operation": self.operation, "operationMetrics": metrics}},
            {"metaData": metadata},
        ]
        lines = "\n".join(map(json.dumps, actions))
        (log / f"{len(rows) - 1:020}.json").write_text(lines)
        (Path(folder) / "rows").write_text(json.dumps(rows))
        return Frame([])

    def call(self, step: Step, text: str, folder: str) -> None:
        raise AssertionError(step)

    def changes(self, folder: str, first: int, last: int) -> Any:
        rows = json.loads((Path(folder) / "rows").read_text())[first : last + 1]
        return Feed([(row, first + place) for place, row in enumerate(self.feed(rows))])

    def clear_caches(self) -> None:
        self.tables.clear()


STEPS = [Step(number, "insert", f"ADD {number} {{t}}") for number in range(8)]


def differences(tmp_path: Path, ours: Fake, steps: Sequence[Step] = STEPS) -> list[Difference]:
    machine = Machine(None, Fake("delta"), ours, tmp_path)  # type: ignore[arg-type]
    return machine.run_steps(steps).differences


def test_equal_engines_have_no_differences(tmp_path: Path) -> None:
    ours = Fake("txlake")
    assert differences(tmp_path, ours) == []
    assert ours.tables == {}, "programs fill an engine's memory"


@pytest.mark.parametrize(
    ("ours", "aspect"),
    [
        (Fake("txlake", lambda rows: rows[:-1] if 5 in rows else rows), "rows"),
        (Fake("txlake", lambda rows: [*rows, 5] if 5 in rows else rows), "rows"),
        (Fake("txlake", refused=(5,)), "outcome"),
        (Fake("txlake", operation="MERGE"), "history"),
        (Fake("txlake", property="2"), "definition"),
        (Fake("txlake", type="long"), "schema"),
        (Fake("txlake", feed=lambda rows: [] if 5 in rows else rows), "feed"),
    ],
    ids=["a row lost", "a row doubled", "refused", "history", "property", "schema", "feed"],
)
def test_a_fault_is_found_and_reduced(tmp_path: Path, ours: Fake, aspect: str) -> None:
    first = differences(tmp_path, ours)[0]
    assert first.aspect == aspect
    steps, found = shrink(STEPS, first, lambda fewer: differences(tmp_path, ours, fewer))
    assert found.aspect == aspect
    if first.step.number == 5:
        assert [step.number for step in steps] == [0, 5]


def test_a_table_that_the_other_engine_misreads_is_found(tmp_path: Path) -> None:
    ours = Fake("txlake")
    blind = Fake("delta", lambda rows: rows)
    machine = Machine(None, blind, ours, tmp_path)  # type: ignore[arg-type]
    place = f"{tmp_path}/run1/txlake/t"
    original = blind.frame

    def frame(text: str) -> Any:
        found = original(text)
        return Frame(found.rows[1:]) if place in text and text.startswith("SELECT") else found

    blind.frame = frame  # type: ignore[method-assign]
    (first, *_) = machine.run_steps(STEPS[:1]).differences
    assert first.aspect == "other's rows"


def test_feeds_are_compared_without_their_versions(tmp_path: Path) -> None:
    ours = Fake("txlake", feed=lambda rows: [row + 1 for row in rows])
    found = differences(tmp_path, ours, STEPS[:1])
    assert [one.aspect for one in found] == ["feed", "other's feed", "other's feed"]
    assert found[0].delta == "1 rows, alone (0)"


def test_rows_are_compared_to_the_bit_in_any_order() -> None:
    def text(*values: Any) -> Any:
        return row_texts([(value,) for value in values])

    assert rows_differ(text(1, 2, 2), text(2, 1, 2)) is None
    assert rows_differ(text(float("nan")), text(float("-nan"))) is None
    assert rows_differ(text({"a": 1, "b": 2}), text({"b": 2, "a": 1})) is None
    for one, other in (
        (text(1, 2, 2), text(1, 2)),
        (text(0.0), text(-0.0)),
        (text(None), text("")),
        (text(None), text("None")),
        (text(1), text(True)),
        (text("a"), text("a ")),
        (text(b"a"), text("a")),
        (text([1, None]), text([1])),
    ):
        assert rows_differ(one, other) is not None


def test_equal_seeds_give_equal_programs() -> None:
    assert [Program(seed).first_step() for seed in range(9)] == [
        Program(seed).first_step() for seed in range(9)
    ]
    assert len({Program(seed).first_step().text for seed in range(9)}) == 9


def test_a_version_placeholder_means_the_version_after_its_step() -> None:
    text = "SELECT * FROM {t} VERSION AS OF {v4}"
    places = {"t": "/d/t"}
    assert fill_placeholders(text, places, {0: 0, 2: 1, 4: 3}).endswith("`/d/t` VERSION AS OF 3")
    assert fill_placeholders(text, places, {0: 0, 2: 1, 5: 4}).endswith("AS OF 1")
