"""Runs a program on both engines, and compares them after every step."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.differential import comparing
from tests.differential.comparing import Aspect, Difference
from tests.differential.engines import Engine, run
from tests.differential.known import KnownDifference, find_known
from tests.differential.logs import Log, read_log
from tests.differential.programs import STEPS_MAX, Program
from tests.differential.schemas import TableShape
from tests.differential.steps import Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ERROR_CHARACTERS = 6000
# Differences after which a program continues, because the tables are still equal.
_NOT_ENDING = ("answer", "history", "schema", "feed", "other's feed")


@dataclass(slots=True)
class Result:
    """A program's steps, its differences, and its known differences."""

    steps: list[Step] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    known: list[tuple[KnownDifference, Difference]] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)


class Machine:
    """Two engines in one Spark session, and a folder for their tables."""

    def __init__(self, spark: SparkSession, delta: Engine, txlake: Engine, scratch: Path) -> None:
        self._spark = spark
        self._engines = (delta, txlake)
        self._scratch = scratch
        self._runs = 0

    def seed(self, seed: int, steps_max: int = STEPS_MAX) -> Result:
        """Run a seed's program, where each step is generated for the table's present state."""
        program = Program(seed, steps_max)

        def steps(current: Callable[[], TableShape | None]) -> Iterator[Step]:
            yield program.first_step()
            for number in range(1, program.length + 1):
                shape = current()
                if shape is None or not shape.written:
                    return
                yield program.next_step(number, shape)

        return self._run(steps)

    def run_steps(self, steps: Sequence[Step]) -> Result:
        """Run these steps."""
        return self._run(lambda _: iter(steps))

    def _run(self, source: Callable[[Callable[[], TableShape | None]], Iterator[Step]]) -> Result:
        self._runs += 1
        folder = self._scratch / f"run{self._runs}"
        run = _Run(self._spark, self._engines, folder)
        try:
            for step in source(run.shape):
                run.result.steps.append(step)
                if not run.step(step):
                    break
            return run.result
        finally:
            for engine in self._engines:
                engine.clear_caches()
            shutil.rmtree(folder, ignore_errors=True)


class _Run:
    def __init__(self, spark: SparkSession, engines: tuple[Engine, Engine], folder: Path) -> None:
        self.result = Result()
        self._spark = spark
        self._engines = engines
        self._folders = [{letter: folder / one.name / letter for letter in "tu"} for one in engines]
        self._versions: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._compared_versions: list[dict[str, int]] = [{}, {}]

    def shape(self) -> TableShape | None:
        """Return the present state of Delta Spark's table."""
        log = read_log(self._folders[0]["t"])
        return None if log is None else log.shape

    def step(self, step: Step) -> bool:
        """Run a step on both engines. Return False if the tables are no longer equal."""
        before = self.shape()
        answers = [self._execute(place, step) for place in (0, 1)]
        for place, folders in enumerate(self._folders):
            log = read_log(folders["t"])
            if log is not None:
                self._versions[place][step.number] = log.version
        errors = [answer if isinstance(answer, str) else None for answer in answers]
        self.result.outcomes[f"{step.kind} {'done' if errors[0] is None else 'refused'}"] += 1
        is_equal = True
        for aspect, pair in self._differences(answers, errors):
            if pair is None:
                continue
            difference = Difference(step, aspect, *pair, shape=before)
            known = find_known(difference)
            if known is None:
                self.result.differences.append(difference)
            else:
                self.result.known.append((known, difference))
            if aspect == "outcome" or (aspect == "definition" and known is not None):
                return False  # later differences would follow from this one
            is_equal = is_equal and aspect in _NOT_ENDING
        return is_equal

    def _execute(self, place: int, step: Step) -> Any:
        places = {letter: str(path) for letter, path in self._folders[place].items()}
        try:
            return run(self._engines[place], self._spark, step, places, self._versions[place])
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS]

    def _differences(
        self, answers: list[Any], errors: list[str | None]
    ) -> Iterator[tuple[Aspect, tuple[str, str] | None]]:
        if (errors[0] is None) != (errors[1] is None):
            yield "outcome", (errors[0] or "done", errors[1] or "done")
        elif errors[0] is None:
            texts = [comparing.row_texts(answer) for answer in answers]
            yield "answer", comparing.rows_differ(*texts)
        for letter in "tu":
            logs = [read_log(folders[letter]) for folders in self._folders]
            if logs[0] is None or logs[1] is None:
                if logs != [None, None]:
                    yield "definition", (_existence(logs[0]), _existence(logs[1]))
                continue
            is_touched = any(
                self._compared_versions[place].get(letter, -1) != log.version
                for place, log in enumerate(logs)
                if log is not None
            )
            if is_touched:
                yield from self._compare_table(letter, logs[0], logs[1])

    def _compare_table(
        self, letter: str, delta: Log, txlake: Log
    ) -> Iterator[tuple[Aspect, tuple[str, str] | None]]:
        compared = [versions.get(letter, -1) for versions in self._compared_versions]
        for versions, log in zip(self._compared_versions, (delta, txlake), strict=True):
            versions[letter] = log.version
        yield "definition", comparing.parts_differ(delta.definition(), txlake.definition())
        folders = [str(one[letter]) for one in self._folders]
        reads: dict[tuple[int, int], Any] = {}
        for reader in (0, 1):
            for owner in (0, 1):
                reads[reader, owner] = self._read(reader, folders[owner])
        own = reads[0, 0], reads[1, 1]
        yield "rows", _rows_differ(own[0], own[1])
        for owner in (0, 1):
            pair = _rows_differ(reads[0, owner], reads[1, owner])
            yield (
                "other's rows",
                pair and (f"{pair[0]} of {'our' if owner else 'its'} table", pair[1]),
            )
        schemas = [{} if isinstance(one, str) else one[1] for one in own]
        yield "schema", comparing.parts_differ(*schemas)
        yield (
            "history",
            comparing.history_differs(
                comparing.history_of(delta, compared[0]), comparing.history_of(txlake, compared[1])
            ),
        )
        yield from self._compare_feeds(folders, (delta, txlake), compared)

    def _compare_feeds(
        self, folders: Sequence[str], logs: tuple[Log, Log], compared: Sequence[int]
    ) -> Iterator[tuple[Aspect, tuple[str, str] | None]]:
        """Compare what each engine reads of both feeds, for new versions with a feed."""
        reads: dict[tuple[int, int], Any] = {}
        for owner, log in enumerate(logs):
            new = log.commits[compared[owner] + 1 :]
            if not all(one.has_feed for one in new):
                return
            for reader in (0, 1):
                changes = self._changes(reader, folders[owner], compared[owner] + 1, log.version)
                reads[reader, owner] = changes
        yield "feed", _rows_differ(*(_without_version(reads[place, place]) for place in (0, 1)))
        for owner in (0, 1):
            pair = _rows_differ(reads[0, owner], reads[1, owner])
            yield (
                "other's feed",
                pair and (f"{pair[0]} of {'our' if owner else 'its'} table", pair[1]),
            )

    def _changes(self, reader: int, folder: str, first: int, last: int) -> Any:
        if first > last:
            return Counter[str](), None
        try:
            rows = self._engines[reader].changes(folder, first, last).drop("_commit_timestamp")
            return comparing.row_texts(rows.collect()), None
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS]

    def _read(self, reader: int, folder: str) -> Any:
        try:
            frame = self._engines[reader].frame(f"SELECT * FROM delta.`{folder}`")
            return comparing.row_texts(frame.collect()), comparing.schema_of(frame.schema)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS]


def _rows_differ(one: Any, other: Any) -> tuple[str, str] | None:
    if isinstance(one, str) and isinstance(other, str):
        return None
    if isinstance(one, str) or isinstance(other, str):
        return tuple(side if isinstance(side, str) else "read" for side in (one, other))  # type: ignore[return-value]
    return comparing.rows_differ(one[0], other[0])


def _without_version(changes: Any) -> Any:
    """Return the rows without the version, which is their last value."""
    if isinstance(changes, str):
        return changes
    rows: Counter[str] = Counter()
    for text, count in changes[0].items():
        rows[text.rpartition(", ")[0] + ")"] += count
    return rows, None


def _existence(log: Log | None) -> str:
    return "no table" if log is None else "a table"
