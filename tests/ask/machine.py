"""Makes a seed's table, asks questions about it in many ways, and compares the answers."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import txlake
from tests.ask.conditions import Condition, Drawing
from tests.ask.making import Made, Maker
from tests.ask.tables import FOREIGN_WRITERS, ID, OWN_WRITERS, ZONES, Plan, draw
from tests.ask.ways import BATCHES, CHEAP, WAYS, Answer, Doors, Failed, Ids, Question
from tests.server.client import Client
from tests.spark.session_settings import SETTINGS_TO_DRAW, settings_made
from txlake.server.calls import Limits
from txlake.settings import Settings
from txlake.spark import candidate_rows, driver_merge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUESTIONS = 50
_TOGETHER = 25
# Of the questions, those that are answered by a job that many share, and by one of their own.
_SHARES = {"projected": 0.5, "read.where": 0.3, "read(where)": 0.4}
_SPARKS_SHARE = 0.35
_ROWS_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The session's settings, and whether the driver may answer by itself.

    Attributes:
        settings: those that the table is made with, too.
        asking: those that are set when questions are asked.
    """

    settings: tuple[tuple[str, str], ...]
    by_driver: bool
    asking: tuple[tuple[str, str], ...] = ()

    @property
    def is_ansi(self) -> bool:
        """Whether Spark ends in an error for what doesn't fit."""
        return dict(self.settings).get("spark.sql.ansi.enabled", "true") == "true"

    @property
    def are_default(self) -> bool:
        """Whether nothing but the zone is set."""
        return all(key in _ZONE_AND_COMPILER for key, _ in (*self.settings, *self.asking))


_ZONE = "spark.sql.session.timeZone"
_COMPILER = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
_ZONE_AND_COMPILER = (_ZONE, *_COMPILER)
# By this rule filters of rows in memory are evaluated before they are simplified.
_EVALUATED_AS_FILES_ARE = {
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    )
}
_SOCKET = "SocketAuthServer.getResult"
_CONSTANT_OF_ERROR = re.compile(r"\[CAST_[A-Z_]+\] The value (.+?) of the type")
_UPPER_BOUND = re.compile(r"\bBETWEEN .+ AND (.+)$")
# Drawn already; and one by which a name in backquotes is a pattern for names.
_DRAWN_HERE = (_ZONE, "spark.sql.ansi.enabled", "spark.sql.parser.quotedRegexColumnNames")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Ways that don't agree about a condition."""

    seed: int
    number: int
    condition: Condition | None
    plan: Plan
    circumstances: Circumstances
    expected: str
    answers: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        plan = self.plan
        columns = ", ".join(
            f"{one.name} {one.sql}" + (f" -> {one.later}" if one.later else "")
            for one in plan.columns
        )
        lines = [
            f"seed {self.seed}, question {self.number}",
            f"  settings: {dict(self.circumstances.settings)}",
            f"  settings of the questions: {dict(self.circumstances.asking)}",
            f"  rows are found {'here' if self.circumstances.by_driver else 'by Spark alone'}",
            f"  table: {columns}; {'by its path' if plan.is_path else 'by its name'}",
            f"  written: {[(by, len(rows)) for by, rows in plan.chunks]}",
            f"  partitioned by {plan.partition_by}, row groups of {plan.group_rows}",
            f"  properties: {dict(plan.properties)}",
            f"  steps: {[(step.what, step.ids[:10]) for step in plan.steps]}",
        ]
        if len(plan.rows) <= 12:
            lines += [f"  row: {row}" for row in plan.rows]
        if self.condition is not None:
            lines.append(f"  condition: {self.condition.text()}")
        lines.append(f"  expected: {self.expected}")
        lines += [f"  {way}: {answer}" for way, answer in self.answers]
        return "\n".join(lines)


@dataclass(slots=True)
class Result:
    """What became of a seed."""

    differences: list[Difference] = field(default_factory=list)
    questions: int = 0
    reached: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, other: Result) -> None:
        """Counts what became of another seed too."""
        self.differences += other.differences
        self.questions += other.questions
        self.reached.update(other.reached)
        self.outcomes.update(other.outcomes)
        for what, took in other.seconds.items():
            self.seconds[what] = self.seconds.get(what, 0.0) + took

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Adds the block's time to what was spent."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + time.monotonic() - begun


class Machine:
    """A lake, and all the doors to it, in one Spark session."""

    def __init__(self, spark: SparkSession, scratch: Path, *, with_delta_spark: bool) -> None:
        self._spark = spark
        settings = Settings(allow_outside_paths=("*",))
        warehouse = str(scratch / "lake")
        self._lake = txlake.connect(warehouse, spark=spark, settings=settings)
        self._other = txlake.connect(warehouse, settings=settings)
        limits = Limits(sql_rows_max=_ROWS_MAX)
        self._served = Client(self._other, limits=limits)
        self._served.__enter__()
        self._maker = Maker(self._lake, scratch, spark)
        foreign = FOREIGN_WRITERS if with_delta_spark else FOREIGN_WRITERS[:-1]
        self._writers = (*OWN_WRITERS, *foreign)

    def close(self) -> None:
        """Ends the doors; Spark goes on."""
        self._served.__exit__(None, None, None)
        self._other.close()
        self._lake.close()

    @staticmethod
    def plain() -> Circumstances:
        """Spark's default settings in UTC, and rows that are found in this process."""
        return Circumstances(settings=((_ZONE, "UTC"),), by_driver=True)

    def seed(
        self, seed: int, questions: int = QUESTIONS, *, only: int | None = None, every: bool = False
    ) -> Result:
        """Asks a seed's questions. `only`: one of them, `every`: in every way."""
        luck = Random(seed)
        circumstances = _circumstances(luck)
        plan = draw(luck, self._writers)
        pools = {one.name: [row[one.name] for row in plan.rows[:200]] for one in plan.columns}
        folds_case = dict(circumstances.asking).get("spark.sql.caseSensitive") != "true"
        conditions = []
        for number in range(questions):
            drawing = Drawing(
                Random(f"{seed}/{number}"), plan.columns, pools, folds_case=folds_case
            )
            conditions.append((number, drawing.condition()))
        if only is not None:
            conditions = [one for one in conditions if one[0] == only]
        return self.ask(seed, plan, circumstances, conditions, every=every or only is not None)

    def ask(
        self,
        seed: int,
        plan: Plan,
        circumstances: Circumstances,
        conditions: Sequence[tuple[int, Condition]],
        *,
        every: bool = False,
    ) -> Result:
        """Asks these questions about this table."""
        result = Result()
        with self._settings(circumstances.settings), _limits(circumstances):
            try:
                with ExitStack() as stack:
                    with result.timed("making"):
                        made = stack.enter_context(self._maker.table(plan))
                    doors = self._doors(seed, made, circumstances)
                    stack.enter_context(self._settings(circumstances.asking))
                    _Run(doors, seed, circumstances, result).ask(conditions, every=every)
            except Exception as error:
                if result.questions:
                    raise
                found = Difference(
                    seed=seed,
                    number=-1,
                    condition=None,
                    plan=plan,
                    circumstances=circumstances,
                    expected="the table is made",
                    answers=(("making", Failed.of(error).error),),
                )
                result.differences.append(found)
        return result

    def _settings(self, settings: tuple[tuple[str, str], ...]) -> AbstractContextManager[None]:
        return settings_made(self._spark, dict(settings))

    def _doors(self, seed: int, made: Made, circumstances: Circumstances) -> Doors:
        plane: Any = self._served.engine.plane
        plane._spark = None  # another session serves the next table
        return Doors(
            spark=self._spark,
            lake=self._lake,
            served=self._served,
            unstarted=self._other,
            made=made,
            memory=self._maker.memory(made.plan),
            ids=tuple(row[ID] for row in made.plan.rows),
            luck=Random(f"{seed}/ways"),
            has_default_settings=circumstances.are_default,
        )


def _circumstances(luck: Random) -> Circumstances:
    settings = [(_ZONE, luck.choice(ZONES))]
    if luck.random() < 0.2:
        settings.append(("spark.sql.ansi.enabled", "false"))
    is_compiled = luck.random() < 0.1
    settings.append((_COMPILER[0], str(is_compiled).lower()))
    settings.append((_COMPILER[1], "FALLBACK" if is_compiled else "NO_CODEGEN"))
    by_driver = luck.random() < 0.65
    could = [one for one in SETTINGS_TO_DRAW.items() if one[0] not in _DRAWN_HERE]
    drawn = luck.sample(could, luck.choice((0, 0, 0, 1, 2)))
    asking = tuple((key, luck.choice(values)) for key, values in drawn)
    return Circumstances(settings=tuple(settings), by_driver=by_driver, asking=asking)


@contextmanager
def _limits(circumstances: Circumstances) -> Iterator[None]:
    """The limits up to which this process finds rows itself; none where Spark is to find them."""
    limits = (candidate_rows._FILES_MAX, driver_merge._ROWS_MAX)
    if not circumstances.by_driver:
        candidate_rows._FILES_MAX, driver_merge._ROWS_MAX = -1, -1
    try:
        yield
    finally:
        candidate_rows._FILES_MAX, driver_merge._ROWS_MAX = limits


class _Run:
    def __init__(
        self, doors: Doors, seed: int, circumstances: Circumstances, result: Result
    ) -> None:
        self._doors = doors
        self._seed = seed
        self._circumstances = circumstances
        self._result = result

    def ask(self, conditions: Sequence[tuple[int, Condition]], *, every: bool) -> None:
        timed = self._result.timed
        with timed("rows"):
            self._rows()
        with timed("truth"):
            truths = _halved(self._truths, [one for _, one in conditions])
        questions: list[Question] = []
        refused: list[tuple[int, Condition, Failed]] = []
        for (number, condition), truth in zip(conditions, truths, strict=True):
            self._result.questions += 1
            if isinstance(truth, Failed):
                refused.append((number, condition, truth))
                self._result.outcomes["refused by Spark"] += 1
            else:
                true, false, unknown = truth
                self._result.outcomes["some rows" if true else "no row"] += 1
                questions.append(
                    Question(
                        number=number, condition=condition, true=true, false=false, unknown=unknown
                    )
                )
        answers: dict[int, list[tuple[str, Answer]]] = {one.number: [] for one in questions}
        for way, batch in BATCHES.items():
            share = 1.0 if every else _SHARES[way]
            chosen = [one for one in questions if self._doors.luck.random() < share]
            for start in range(0, len(chosen), _TOGETHER):
                some = chosen[start : start + _TOGETHER]
                with timed(way):
                    found = _halved(partial(batch, self._doors), some)
                for one, answer in zip(some, found, strict=True):
                    answers[one.number].append((way, answer))
        for one in questions:
            for way in self._ways(every=every):
                answers[one.number].append((way, self._answer(way, one)))
            self._compare(one, answers[one.number])
        with timed("refusals"):
            for number, condition, truth in refused:
                self._refusals(number, condition, truth, every=every)

    def _ways(self, *, every: bool) -> Sequence[str]:
        luck = self._doors.luck
        if every or luck.random() < 0.01:
            return list(WAYS)
        found = ["log", luck.choice(CHEAP)]
        if luck.random() < _SPARKS_SHARE:
            found.append(luck.choice([one for one in WAYS if one not in ("log", *CHEAP)]))
        return found

    def _answer(self, way: str, one: Question) -> Answer:
        with self._result.timed(way):
            try:
                return WAYS[way](self._doors, one)
            except Exception as error:
                if _SOCKET not in str(error):
                    return Failed.of(error)
                # PySpark hands rows over by a socket that waits 15 seconds, busy machine or not.
                self._result.outcomes["a socket of PySpark's was asked again"] += 1
                return WAYS[way](self._doors, one)

    def _rows(self) -> None:
        """The table's rows are those that were written, whoever reads them."""
        doors = self._doors
        expected = _texts(doors.memory.select(_order(doors)))
        ways: dict[str, Callable[[], DataFrame]] = {
            "all rows": lambda: doors.lake.read(doors.made.call),
            "all rows by id": lambda: doors.lake.sql(
                f"SELECT * FROM {doors.made.sql} WHERE {ID} >= 0"
            ),
        }
        answers = []
        for way, frame in ways.items():
            try:
                found = _texts(frame())
            except Exception as error:
                answers.append((way, Failed.of(error).error))
                continue
            if found != expected:
                lines = [f"{one} for {other}" for one, other in _unequal(found, expected)]
                answers.append((way, "; ".join(lines[:3])))
        if answers:
            self._differ(-1, None, f"{len(expected)} rows", answers)

    def _truths(self, conditions: Sequence[Condition]) -> Sequence[tuple[Ids, Ids, Ids]]:
        shown = [f"({one.text()}) AS q{place}" for place, one in enumerate(conditions)]
        table = self._doors.memory.selectExpr(ID, *shown).toArrow()
        ids = table.column(0).to_pylist()
        found = []
        for column in table.columns[1:]:
            parts: dict[bool | None, list[int]] = {True: [], False: [], None: []}
            for one, value in zip(ids, column.to_pylist(), strict=True):
                parts[value].append(one)
            true, false, unknown = (tuple(sorted(parts[key])) for key in (True, False, None))
            found.append((true, false, unknown))
        return found

    def _compare(self, one: Question, answers: Sequence[tuple[str, Answer]]) -> None:
        wrong = []
        for way, answer in answers:
            if answer is None:
                continue
            self._result.outcomes[f"way {way}"] += 1
            self._reach(one.condition, way)
            expected = len(one.true) if way == "count" else one.true
            if answer == expected:
                continue
            if isinstance(answer, Failed) and self._may_fail(one.condition, answer):
                self._result.outcomes["an error by the order of evaluation"] += 1
                continue
            shown = answer.error if isinstance(answer, Failed) else str(answer)
            wrong.append((way, shown[:600]))
        if wrong:
            expected_text = (
                f"true of {_short(one.true)}, false of {_short(one.false)}, "
                f"unknown of {_short(one.unknown)}"
            )
            self._differ(one.number, one.condition, expected_text, wrong)

    def _refusals(self, number: int, condition: Condition, truth: Failed, *, every: bool) -> None:
        """Where Spark raises for some row, or doesn't take the condition, all ways raise."""
        one = Question(number=number, condition=condition, true=(), false=(), unknown=())
        ways = [*BATCHES, *(way for way in self._ways(every=every) if way not in _NOT_RUN)]
        is_of_rows = not truth.error.startswith(("AnalysisException", "ParseException"))
        if not every:
            ways = self._doors.luck.sample(ways, 2)
        wrong = []
        for way in ways:
            try:
                if way in BATCHES:
                    [answer] = BATCHES[way](self._doors, [one])
                else:
                    answer = WAYS[way](self._doors, one)
            except Exception:
                continue
            if answer is None or isinstance(answer, Failed):
                continue
            if is_of_rows and (condition.parts or self._is_folded(condition)):
                self._result.outcomes["an error hidden by the order of evaluation"] += 1
                continue
            wrong.append((way, str(answer)[:600]))
        if wrong:
            self._differ(number, condition, f"an error: {truth.error[:400]}", wrong)

    def _may_fail(self, condition: Condition, failed: Failed) -> bool:
        """Whether Spark, in another order, might evaluate something that fails."""
        constant = _CONSTANT_OF_ERROR.search(failed.error)
        if constant is not None and _unquoted(constant[1]) in condition.text():
            return True  # a constant that rows in memory, with NULL beside it, left unevaluated
        memory = self._doors.memory
        leaves = _leaves(condition)
        if any(
            _raises(frame)
            for frame in (memory.where(condition.text()), *map(memory.selectExpr, leaves))
        ):
            return True
        with settings_made(self._doors.spark, _EVALUATED_AS_FILES_ARE):
            if _raises(memory.where(condition.text())):
                return True
        # Spark need not evaluate an upper bound for rows below the lower one.
        bounds = [found[1] for found in map(_UPPER_BOUND.search, leaves) if found]
        return any(_raises(memory.selectExpr(bound)) for bound in bounds)

    def _is_folded(self, condition: Condition) -> bool:
        """Whether Spark knows of a filter, without evaluating it, that no row meets it."""
        doors = self._doors
        with settings_made(doors.spark, _EVALUATED_AS_FILES_ARE):
            return not _raises(doors.memory.where(condition.text()))

    def _reach(self, condition: Condition, way: str) -> None:
        reached, plan = self._result.reached, self._doors.made.plan
        for kind in set(condition.all_kinds()):
            reached["type", kind, way] += 1
            reached["type by writer", kind, plan.writer] += 1
        for operator in set(condition.operators()):
            reached["operator", operator, way] += 1
        reached["writer", plan.writer, way] += 1
        for feature in plan.features():
            reached["feature", feature, way] += 1

    def _differ(
        self,
        number: int,
        condition: Condition | None,
        expected: str,
        answers: Sequence[tuple[str, str]],
    ) -> None:
        self._result.differences.append(
            Difference(
                seed=self._seed,
                number=number,
                condition=condition,
                plan=self._doors.made.plan,
                circumstances=self._circumstances,
                expected=expected,
                answers=tuple(answers),
            )
        )


def _order(doors: Doors) -> list[str]:
    """The table's columns: where folders say them, CONVERT TO DELTA puts them behind the others."""
    names, plan = doors.memory.columns, doors.made.plan
    last = list(plan.partition_by) if plan.writer == "pyarrow" else []
    return [f"`{name}`" for name in [*(one for one in names if one not in last), *last]]


def _unquoted(value: str) -> str:
    """The value that an error shows, as a literal of it begins."""
    return value.strip("'").removesuffix("D").removesuffix("L").removesuffix("BD")


def _raises(frame: DataFrame) -> bool:
    try:
        frame.collect()
    except Exception:
        return True
    return False


def _leaves(condition: Condition) -> list[str]:
    """The texts of the parts that have no parts."""
    if not condition.parts:
        return [condition.text()]
    return [text for part in condition.parts for text in _leaves(part)]


Item = TypeVar("Item")
Found = TypeVar("Found")
# Ways that run nothing, so that no row makes them fail, or that take an error for their answer.
_NOT_RUN = ("log", "EXPLAIN CONFLICTS", "SET")


def _halved(
    work: Callable[[Sequence[Item]], Sequence[Found]],
    items: Sequence[Item],
    *,
    is_repeated: bool = False,
) -> list[Found | Failed]:
    """The work on all items at once; where it fails, on the halves, down to single ones."""
    if not items:
        return []
    try:
        return list(work(items))
    except Exception as error:
        if len(items) == 1 and _SOCKET in str(error) and not is_repeated:
            return _halved(work, items, is_repeated=True)
        if len(items) == 1:
            return [Failed.of(error)]
    middle = len(items) // 2
    return [*_halved(work, items[:middle]), *_halved(work, items[middle:])]


def _texts(frame: DataFrame) -> list[str]:
    table = frame.toArrow()
    columns = [column.cast(column.type).to_pylist() for column in table.columns]
    return sorted(repr(row) for row in zip(*columns, strict=True))


def _unequal(found: list[str], expected: list[str]) -> Iterator[tuple[str, str]]:
    if len(found) != len(expected):
        yield f"{len(found)} rows", f"{len(expected)}"
    one, other = Counter(found), Counter(expected)
    yield from zip(list((one - other).elements()), list((other - one).elements()), strict=False)


def _short(ids: Ids) -> str:
    return str(list(ids)) if len(ids) <= 20 else f"{list(ids[:20])} and {len(ids) - 20} more"
