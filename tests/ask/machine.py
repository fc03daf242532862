"""Creates a seed's table, asks questions about it in many ways, and compares the answers."""

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
from tests.ask.conditions import Condition, ConditionGenerator
from tests.ask.making import CreatedTable, TableMaker
from tests.ask.tables import FOREIGN_WRITERS, ID, OWN_WRITERS, ZONES, Plan, random_plan
from tests.ask.ways import BATCHES, CHEAP, WAYS, Answer, Connections, Failed, Ids, Question
from tests.server.client import Client
from tests.spark.session_settings import SETTINGS_TO_DRAW, settings_made
from txlake.local import candidate_rows
from txlake.local import merge as local_merge
from txlake.server.calls import Limits
from txlake.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUESTIONS = 50
_BATCH_SIZE = 25
# The shares of questions that each batched way answers, and that a way with a Spark job answers.
_SHARES = {"projected": 0.5, "read.where": 0.3, "read(where)": 0.4}
_SPARK_WAYS_SHARE = 0.35
_ROWS_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSetup:
    """The session's settings, and whether the driver may find rows without Spark.

    Attributes:
        settings: settings for the table's creation and for the questions.
        question_settings: settings for the questions only.
    """

    settings: tuple[tuple[str, str], ...]
    uses_driver: bool
    question_settings: tuple[tuple[str, str], ...] = ()

    @property
    def is_ansi(self) -> bool:
        """Whether Spark raises errors for values that don't fit."""
        return dict(self.settings).get("spark.sql.ansi.enabled", "true") == "true"

    @property
    def are_default(self) -> bool:
        """Whether only the zone and the compiler are set."""
        return all(
            key in _ZONE_AND_COMPILER for key, _ in (*self.settings, *self.question_settings)
        )


_ZONE = "spark.sql.session.timeZone"
_COMPILER = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
_ZONE_AND_COMPILER = (_ZONE, *_COMPILER)
# Without this rule Spark evaluates filters of rows in memory only after simplifying them.
_EVALUATED_AS_FILES_ARE = {
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    )
}
_SOCKET = "SocketAuthServer.getResult"
_CONSTANT_OF_ERROR = re.compile(r"\[CAST_[A-Z_]+\] The value (.+?) of the type")
_UPPER_BOUND = re.compile(r"\bBETWEEN .+ AND (.+)$")
# Chosen separately; the last one would make names in backquotes patterns.
_CHOSEN_SETTINGS = (_ZONE, "spark.sql.ansi.enabled", "spark.sql.parser.quotedRegexColumnNames")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A condition to which ways give different answers."""

    seed: int
    number: int
    condition: Condition | None
    plan: Plan
    setup: SessionSetup
    expected: str
    answers: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        plan = self.plan
        columns = ", ".join(
            f"{one.name} {one.sql}" + (f" -> {one.widened}" if one.widened else "")
            for one in plan.columns
        )
        lines = [
            f"seed {self.seed}, question {self.number}",
            f"  settings: {dict(self.setup.settings)}",
            f"  settings of the questions: {dict(self.setup.question_settings)}",
            f"  rows are found {'here' if self.setup.uses_driver else 'by Spark alone'}",
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
    """The differences and counts of one or more seeds."""

    differences: list[Difference] = field(default_factory=list)
    questions: int = 0
    reached: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, other: Result) -> None:
        """Add another seed's result."""
        self.differences += other.differences
        self.questions += other.questions
        self.reached.update(other.reached)
        self.outcomes.update(other.outcomes)
        for what, duration_s in other.seconds.items():
            self.seconds[what] = self.seconds.get(what, 0.0) + duration_s

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the duration of this block to a name's total."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + time.monotonic() - start


class Machine:
    """A lake and all connections to it, in one Spark session."""

    def __init__(self, spark: SparkSession, scratch: Path, *, with_delta_spark: bool) -> None:
        self._spark = spark
        settings = Settings(allow_outside_paths=("*",))
        warehouse = str(scratch / "lake")
        self._lake = txlake.connect(warehouse, spark=spark, settings=settings)
        self._other = txlake.connect(warehouse, settings=settings)
        limits = Limits(sql_rows_max=_ROWS_MAX)
        self._ask_server = Client(self._other, limits=limits)
        self._ask_server.__enter__()
        self._maker = TableMaker(self._lake, scratch, spark)
        foreign = FOREIGN_WRITERS if with_delta_spark else FOREIGN_WRITERS[:-1]
        self._writers = (*OWN_WRITERS, *foreign)

    def close(self) -> None:
        """Close the connections; the Spark session stays."""
        self._ask_server.__exit__(None, None, None)
        self._other.close()
        self._lake.close()

    @staticmethod
    def plain() -> SessionSetup:
        """Return Spark's default settings in UTC, where the driver finds rows."""
        return SessionSetup(settings=((_ZONE, "UTC"),), uses_driver=True)

    def seed(
        self, seed: int, questions: int = QUESTIONS, *, only: int | None = None, every: bool = False
    ) -> Result:
        """Ask a seed's questions. `only`: just this one; `every`: in every way."""
        rng = Random(seed)
        setup = _random_setup(rng)
        plan = random_plan(rng, self._writers)
        pools = {one.name: [row[one.name] for row in plan.rows[:200]] for one in plan.columns}
        folds_case = dict(setup.question_settings).get("spark.sql.caseSensitive") != "true"
        conditions = []
        for number in range(questions):
            generator = ConditionGenerator(
                Random(f"{seed}/{number}"), plan.columns, pools, folds_case=folds_case
            )
            conditions.append((number, generator.condition()))
        if only is not None:
            conditions = [one for one in conditions if one[0] == only]
        return self.ask(seed, plan, setup, conditions, every=every or only is not None)

    def ask(
        self,
        seed: int,
        plan: Plan,
        setup: SessionSetup,
        conditions: Sequence[tuple[int, Condition]],
        *,
        every: bool = False,
    ) -> Result:
        """Ask these questions about this table."""
        result = Result()
        with self._settings(setup.settings), _limits(setup):
            try:
                with ExitStack() as stack:
                    with result.timed("making"):
                        table = stack.enter_context(self._maker.table(plan))
                    connections = self._connections(seed, table, setup)
                    stack.enter_context(self._settings(setup.question_settings))
                    _Run(connections, seed, setup, result).ask(conditions, every=every)
            except Exception as error:
                if result.questions:
                    raise
                found = Difference(
                    seed=seed,
                    number=-1,
                    condition=None,
                    plan=plan,
                    setup=setup,
                    expected="the table is made",
                    answers=(("making", Failed.of(error).error),),
                )
                result.differences.append(found)
        return result

    def _settings(self, settings: tuple[tuple[str, str], ...]) -> AbstractContextManager[None]:
        return settings_made(self._spark, dict(settings))

    def _connections(self, seed: int, table: CreatedTable, setup: SessionSetup) -> Connections:
        plane: Any = self._ask_server.engine.plane
        plane._spark = None  # the next table has another session
        return Connections(
            spark=self._spark,
            lake=self._lake,
            served=self._ask_server,
            without_spark=self._other,
            table=table,
            memory=self._maker.memory(table.plan),
            ids=tuple(row[ID] for row in table.plan.rows),
            rng=Random(f"{seed}/ways"),
            has_default_settings=setup.are_default,
        )


def _random_setup(rng: Random) -> SessionSetup:
    settings = [(_ZONE, rng.choice(ZONES))]
    if rng.random() < 0.2:
        settings.append(("spark.sql.ansi.enabled", "false"))
    is_compiled = rng.random() < 0.1
    settings.append((_COMPILER[0], str(is_compiled).lower()))
    settings.append((_COMPILER[1], "FALLBACK" if is_compiled else "NO_CODEGEN"))
    uses_driver = rng.random() < 0.65
    choices = [one for one in SETTINGS_TO_DRAW.items() if one[0] not in _CHOSEN_SETTINGS]
    drawn = rng.sample(choices, rng.choice((0, 0, 0, 1, 2)))
    question_settings = tuple((key, rng.choice(values)) for key, values in drawn)
    return SessionSetup(
        settings=tuple(settings), uses_driver=uses_driver, question_settings=question_settings
    )


@contextmanager
def _limits(setup: SessionSetup) -> Iterator[None]:
    """Set the limits up to which the driver finds rows; without the driver, no rows."""
    limits = (candidate_rows._FILES_MAX, local_merge._ROWS_MAX)
    if not setup.uses_driver:
        candidate_rows._FILES_MAX, local_merge._ROWS_MAX = -1, -1
    try:
        yield
    finally:
        candidate_rows._FILES_MAX, local_merge._ROWS_MAX = limits


class _Run:
    def __init__(
        self, connections: Connections, seed: int, setup: SessionSetup, result: Result
    ) -> None:
        self._connections = connections
        self._seed = seed
        self._random_setup = setup
        self._result = result

    def ask(self, conditions: Sequence[tuple[int, Condition]], *, every: bool) -> None:
        timed = self._result.timed
        with timed("rows"):
            self._check_rows()
        with timed("reference"):
            references = _run_bisected(self._reference_ids, [one for _, one in conditions])
        questions: list[Question] = []
        refused: list[tuple[int, Condition, Failed]] = []
        for (number, condition), reference in zip(conditions, references, strict=True):
            self._result.questions += 1
            if isinstance(reference, Failed):
                refused.append((number, condition, reference))
                self._result.outcomes["refused by Spark"] += 1
            else:
                true, false, unknown = reference
                self._result.outcomes["some rows" if true else "no row"] += 1
                questions.append(
                    Question(
                        number=number, condition=condition, true=true, false=false, unknown=unknown
                    )
                )
        answers: dict[int, list[tuple[str, Answer]]] = {one.number: [] for one in questions}
        for way, batch in BATCHES.items():
            share = 1.0 if every else _SHARES[way]
            chosen = [one for one in questions if self._connections.rng.random() < share]
            for start in range(0, len(chosen), _BATCH_SIZE):
                batch_questions = chosen[start : start + _BATCH_SIZE]
                with timed(way):
                    batch_answers = _run_bisected(
                        partial(batch, self._connections), batch_questions
                    )
                for one, answer in zip(batch_questions, batch_answers, strict=True):
                    answers[one.number].append((way, answer))
        for one in questions:
            for way in self._ways(every=every):
                answers[one.number].append((way, self._answer(way, one)))
            self._compare(one, answers[one.number])
        with timed("refusals"):
            for number, condition, reference in refused:
                self._check_refusal(number, condition, reference, every=every)

    def _ways(self, *, every: bool) -> Sequence[str]:
        rng = self._connections.rng
        if every or rng.random() < 0.01:
            return list(WAYS)
        found = ["log", rng.choice(CHEAP)]
        if rng.random() < _SPARK_WAYS_SHARE:
            found.append(rng.choice([one for one in WAYS if one not in ("log", *CHEAP)]))
        return found

    def _answer(self, way: str, one: Question) -> Answer:
        with self._result.timed(way):
            try:
                return WAYS[way](self._connections, one)
            except Exception as error:
                if _SOCKET not in str(error):
                    return Failed.of(error)
                # PySpark's socket for rows times out after 15 s, too soon on a busy machine.
                self._result.outcomes["a socket of PySpark's was asked again"] += 1
                return WAYS[way](self._connections, one)

    def _check_rows(self) -> None:
        """Check that readers get the rows that were written."""
        connections = self._connections
        expected = _texts(connections.memory.select(_order(connections)))
        ways: dict[str, Callable[[], DataFrame]] = {
            "all rows": lambda: connections.lake.read(connections.table.call),
            "all rows by id": lambda: connections.lake.sql(
                f"SELECT * FROM {connections.table.sql} WHERE {ID} >= 0"
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
            self._add_difference(-1, None, f"{len(expected)} rows", answers)

    def _reference_ids(self, conditions: Sequence[Condition]) -> Sequence[tuple[Ids, Ids, Ids]]:
        shown = [f"({one.text()}) AS q{place}" for place, one in enumerate(conditions)]
        table = self._connections.memory.selectExpr(ID, *shown).toArrow()
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
        problems = []
        for way, answer in answers:
            if answer is None:
                continue
            self._result.outcomes[f"way {way}"] += 1
            self._count_coverage(one.condition, way)
            expected = len(one.true) if way == "count" else one.true
            if answer == expected:
                continue
            if isinstance(answer, Failed) and self._may_fail_in_other_order(one.condition, answer):
                self._result.outcomes["an error by the order of evaluation"] += 1
                continue
            shown = answer.error if isinstance(answer, Failed) else str(answer)
            problems.append((way, shown[:600]))
        if problems:
            expected_text = (
                f"true of {_short(one.true)}, false of {_short(one.false)}, "
                f"unknown of {_short(one.unknown)}"
            )
            self._add_difference(one.number, one.condition, expected_text, problems)

    def _check_refusal(
        self, number: int, condition: Condition, reference: Failed, *, every: bool
    ) -> None:
        """Check that every way raises where Spark raises for some row or refuses the condition."""
        one = Question(number=number, condition=condition, true=(), false=(), unknown=())
        ways = [*BATCHES, *(way for way in self._ways(every=every) if way not in _NOT_RUN)]
        is_of_rows = not reference.error.startswith(("AnalysisException", "ParseException"))
        if not every:
            ways = self._connections.rng.sample(ways, 2)
        problems = []
        for way in ways:
            try:
                if way in BATCHES:
                    [answer] = BATCHES[way](self._connections, [one])
                else:
                    answer = WAYS[way](self._connections, one)
            except Exception:
                continue
            if answer is None or isinstance(answer, Failed):
                continue
            if is_of_rows and (condition.parts or self._is_folded(condition)):
                self._result.outcomes["an error hidden by the order of evaluation"] += 1
                continue
            problems.append((way, str(answer)[:600]))
        if problems:
            self._add_difference(number, condition, f"an error: {reference.error[:400]}", problems)

    def _may_fail_in_other_order(self, condition: Condition, failed: Failed) -> bool:
        """Return whether Spark, with another order of evaluation, might evaluate something that
        fails.
        """
        constant = _CONSTANT_OF_ERROR.search(failed.error)
        if constant is not None and _unquoted(constant[1]) in condition.text():
            return True  # a constant that isn't evaluated for rows in memory with NULL beside it
        memory = self._connections.memory
        leaves = _leaves(condition)
        if any(
            _raises(frame)
            for frame in (memory.where(condition.text()), *map(memory.selectExpr, leaves))
        ):
            return True
        with settings_made(self._connections.spark, _EVALUATED_AS_FILES_ARE):
            if _raises(memory.where(condition.text())):
                return True
        # Spark need not evaluate an upper bound for rows below the lower one.
        bounds = [found[1] for found in map(_UPPER_BOUND.search, leaves) if found]
        return any(_raises(memory.selectExpr(bound)) for bound in bounds)

    def _is_folded(self, condition: Condition) -> bool:
        """Return whether Spark finds without evaluation that no row meets a filter."""
        connections = self._connections
        with settings_made(connections.spark, _EVALUATED_AS_FILES_ARE):
            return not _raises(connections.memory.where(condition.text()))

    def _count_coverage(self, condition: Condition, way: str) -> None:
        reached, plan = self._result.reached, self._connections.table.plan
        for kind in set(condition.all_kinds()):
            reached["type", kind, way] += 1
            reached["type by writer", kind, plan.writer] += 1
        for operator in set(condition.operators()):
            reached["operator", operator, way] += 1
        reached["writer", plan.writer, way] += 1
        for feature in plan.features():
            reached["feature", feature, way] += 1

    def _add_difference(
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
                plan=self._connections.table.plan,
                setup=self._random_setup,
                expected=expected,
                answers=tuple(answers),
            )
        )


def _order(connections: Connections) -> list[str]:
    """Return the table's columns in order; CONVERT TO DELTA puts those of folders last."""
    names, plan = connections.memory.columns, connections.table.plan
    last = list(plan.partition_by) if plan.writer == "pyarrow" else []
    return [f"`{name}`" for name in [*(one for one in names if one not in last), *last]]


def _unquoted(value: str) -> str:
    """Return the value in an error's message as the beginning of a literal of it."""
    return value.strip("'").removesuffix("D").removesuffix("L").removesuffix("BD")


def _raises(frame: DataFrame) -> bool:
    try:
        frame.collect()
    except Exception:
        return True
    return False


def _leaves(condition: Condition) -> list[str]:
    """Return the texts of the innermost parts."""
    if not condition.parts:
        return [condition.text()]
    return [text for part in condition.parts for text in _leaves(part)]


Item = TypeVar("Item")
Value = TypeVar("Value")
# Ways that execute nothing, so that no row fails, or whose answer may be an error.
_NOT_RUN = ("log", "EXPLAIN CONFLICTS", "SET")


def _run_bisected(
    work: Callable[[Sequence[Item]], Sequence[Value]],
    items: Sequence[Item],
    *,
    is_repeated: bool = False,
) -> list[Value | Failed]:
    """Do the work on all items at once; if it fails, on the halves, down to single items."""
    if not items:
        return []
    try:
        return list(work(items))
    except Exception as error:
        if len(items) == 1 and _SOCKET in str(error) and not is_repeated:
            return _run_bisected(work, items, is_repeated=True)
        if len(items) == 1:
            return [Failed.of(error)]
    middle = len(items) // 2
    return [*_run_bisected(work, items[:middle]), *_run_bisected(work, items[middle:])]


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
