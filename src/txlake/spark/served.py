"""The data plane of a server: Spark for the SQL of callers who don't own the machine.

Owns a Spark session that finds no function but pure ones, the judgement of each query before it
runs, and the end of a statement that takes too long or breaks the JVM.
"""

from __future__ import annotations

import logging
import math
import subprocess
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from txlake.errors import Conflict, InvalidRequest, OutcomeUnknown, TxlakeError, Unavailable
from txlake.protocol.types import DataType, Struct
from txlake.spark.plane import SparkPlane, use_this_python
from txlake.spark.plans import refusal_of_plan
from txlake.spark.spark_errors import spark_errors
from txlake.spark.spark_sessions import context_class, dataset_of, is_connect
from txlake.sql.statements import Expression, NativeColumn, Reference
from txlake.sql.statements.calls import served_expression_problem, served_text_problem
from txlake.sql.statements.functions import PURE

_SETTINGS = {
    # A name in backquotes is no file: parquet.`/etc`.
    "spark.sql.runSQLOnFiles": "false",
    # ${env:HOME} in a text is a text.
    "spark.sql.variable.substitute": "false",
}
_GRACE_S_MAX = 30.0
_PROBE_S = 20.0
_STEP_S = 1.0
_JOBS = "a served statement"
_MEMORY = "OutOfMemoryError"
logger = logging.getLogger(__name__)


def served_session(spark: SparkSession) -> SparkSession:
    """Return a session of the same Spark whose SQL finds no function but pure ones.

    Its settings are those of the given session, but for the ones that open files or substitute
    variables of the environment.

    Raises InvalidRequest for Spark Connect, whose client can't judge what its server runs.
    """
    if is_connect(spark):
        raise InvalidRequest(
            "a lake can't be served with Spark Connect: plans are made in Spark's server, where "
            "they can't be judged; start txlake serve without SPARK_REMOTE"
        )
    made = spark.newSession()
    defaults = made.conf.getAll
    changed = {key: value for key, value in spark.conf.getAll.items() if defaults.get(key) != value}
    for key, value in {**changed, **_SETTINGS}.items():
        if not key.startswith("spark.") or made.conf.isModifiable(key):
            made.conf.set(key, value)
    classic: Any = made
    state = classic._jsparkSession.sessionState()
    for registry in (state.functionRegistry(), state.tableFunctionRegistry()):
        known = registry.listFunction()
        for place in range(known.size()):
            name = known.apply(place)
            if _is_word(name.funcName()) and name.funcName().lower() not in PURE:
                registry.dropFunction(name)
    return made


def _is_word(name: str) -> bool:
    return name[:1].isalpha()  # the others are operators: +, <=>


@dataclass(slots=True, kw_only=True)
class ServedPlane(SparkPlane):
    """A plane whose statements come from callers of a server.

    Attributes:
        owns_spark: whether Spark's process may be ended and started again, because nobody else
            uses it.
    """

    owns_spark: bool = False
    takes_active: bool = False
    _threads: threading.local = field(default_factory=threading.local)

    @property
    def spark(self) -> SparkSession:
        """The served session, made at the first use, and active in this thread."""
        spark = self._spark or self._started()
        if getattr(self._threads, "spark", None) is not spark:
            self._enter(spark)
        return spark

    def _started(self) -> SparkSession:
        """Return the session, made unless it is there.

        The wait is left out of the time limit of the thread's statement, which begins anew.
        """
        watch: Watch | None = getattr(self._threads, "watch", None)
        if watch is not None:
            watch.pause()
        try:
            with self._starting:
                if (spark := self._spark) is None:
                    spark = served_session(self.make_spark())
                    use_this_python(spark)
                    self._spark = spark
                return spark
        finally:
            if watch is not None:
                watch.resume()

    def _enter(self, spark: SparkSession) -> None:
        """Make the session this thread's active one, by whose settings Spark parses texts.

        The statement's jobs get its group, by which they are cancelled.
        """
        classic: Any = spark
        kind = classic._get_j_spark_session_class(classic._jvm)
        kind.setActiveSession(classic._jsparkSession)
        self._threads.spark = spark
        watch: Watch | None = getattr(self._threads, "watch", None)
        if watch is not None:
            spark.sparkContext.setJobGroup(watch.group, _JOBS, interruptOnCancel=True)

    # Judging

    def query(self, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Return the rows of a query over these frames, which it names in braces.

        Raises InvalidRequest for a text or a plan that isn't served.
        """
        spark = self.spark
        names = {key: f"txlake_{self.system.new_id().replace('-', '')}" for key in frames}
        given = text.format(**names) if frames else text
        _refuse(served_text_problem(given))
        try:
            for key, name in names.items():
                frames[key].createOrReplaceTempView(name)
            return self._judged(spark, given, names.values())
        finally:
            for name in names.values():
                self.drop_view(name)

    def _judged(self, spark: SparkSession, text: str, views: Iterable[str]) -> DataFrame:
        """Return the rows of a query. Raises InvalidRequest if its analysed plan isn't served."""
        classic: Any = spark
        session = classic._jsparkSession
        state = session.sessionState()
        # Not by spark.sql, which carries a command out before its plan can be looked at.
        skip = classic._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        plan = state.executePlan(state.sqlParser().parsePlan(text), skip).analyzed()
        _refuse(refusal_of_plan(plan.toJSON(), frozenset(views)))
        return DataFrame(dataset_of(spark, session, plan), spark)

    def column(self, expression: Expression, view: Callable[[Reference], str | None]) -> Column:
        """Return the column of an expression; `view` returns the view that replaces each table.

        A Column of the program passes as it is. Raises InvalidRequest for a table that `view`
        doesn't know, and for functions that aren't served.
        """
        if isinstance(expression, NativeColumn):
            return SparkPlane.column(self, expression, view)
        _ = self.spark

        def known(reference: Reference) -> str | None:
            """Return the view of a table, or raise InvalidRequest if there is none."""
            name = view(reference)
            if name is None:
                _refuse(f"there is no {reference.table} in the lake")
            return name

        text = expression.rewritten(known)
        _refuse(served_expression_problem(text))
        return F.expr(text)

    def type_of(self, text: str, schema: Struct) -> DataType:
        """Return the type of an expression. Raises InvalidRequest also if it isn't served."""
        _ = self.spark
        _refuse(served_expression_problem(text))
        return SparkPlane.type_of(self, text, schema)

    def temporary_views(self, names: Collection[str] | None = None) -> Collection[str]:
        """Return no names, and start no Spark: callers have no temporary views."""
        return ()

    # Bounding

    @contextmanager
    def statement(self, timeout_s: float) -> Iterator[Watch]:
        """Cancel this thread's Spark jobs after so many seconds; yields the watch that does so.

        Where that doesn't end the statement, or where it left the JVM broken, Spark is ended if the
        process owns it, and the next statement starts another one.

        Raises Unavailable for a statement that was cancelled, unless a conflict or an unknown
        outcome says what became of it, and for one that failed because Spark ended; other errors
        pass.
        """
        watch = Watch(self, f"txlake-{self.system.new_id()}", timeout_s)
        self._threads.watch = watch
        spark = self._spark
        watch.start()
        try:
            if spark is not None:
                with spark_errors():
                    self._enter(spark)
            yield watch
        except Exception as error:
            watch.stop()
            try:
                self._recover(error)
            except Exception:
                logger.exception("Spark can't be looked after; the next statement tries again")
            # What became of a commit is said by its own error.
            if watch.is_late and not isinstance(error, Conflict | OutcomeUnknown):
                raise Unavailable(
                    f"the statement ran longer than {timeout_s:g} s and was cancelled; ask for "
                    "less at once, or serve with a longer --statement-timeout"
                ) from error
            if not isinstance(error, TxlakeError) and self._has_ended(spark, error):
                raise Unavailable(
                    "Spark ended while the statement ran, because of it or of another one: send it "
                    "again"
                ) from error
            raise
        finally:
            watch.stop()
            self._threads.watch = None

    def _has_ended(self, spark: SparkSession | None, error: Exception) -> bool:
        """Return whether an error is py4j's own, or the plane's Spark isn't `spark` any more."""
        return type(error).__module__.startswith("py4j.") or (
            spark is not None and self._spark is not spark
        )

    def cancel(self, group: str) -> None:
        """Cancel a statement's jobs, if Spark is running."""
        spark = self._spark
        if spark is not None:
            spark.sparkContext.cancelJobGroup(group)

    def _recover(self, error: BaseException) -> None:
        """End Spark if the statement left it dead and the process owns it; do nothing otherwise.

        It is dead if its JVM is gone, or an error of memory or connection came and it doesn't
        answer.
        """
        spark = self._spark
        if spark is None:
            return
        # A JVM that ends takes no connection any more, some time before its process is gone.
        is_suspect = any(
            _MEMORY in str(one) or isinstance(one, ConnectionError) for one in _chain(error)
        )
        if _is_dead() or (is_suspect and not _answers(spark)):
            self.end_spark(spark)

    def end_spark(self, spark: SparkSession | None = None) -> None:
        """End Spark's process; running statements fail, the next one starts another process.

        No-op if `spark` isn't the plane's session any more, and if the process doesn't own Spark.
        """
        with self._starting:
            if self._spark is None or (spark is not None and self._spark is not spark):
                return
            if not self.owns_spark:
                return
            logger.warning("Spark is ended: a statement left it broken, or could not be cancelled")
            with self._lock:
                self._spark = None
                self._constant_frames.clear()
            _end_jvm()


class Watch(threading.Thread):
    """Cancels a statement that is late, until it ends; ends Spark where that doesn't help.

    `is_late` says that the time limit was reached.
    """

    def __init__(self, plane: ServedPlane, group: str, timeout_s: float) -> None:
        super().__init__(name="txlake-statement-watch", daemon=True)
        self._plane = plane
        self.group = group
        self._timeout_ms = 1000 * timeout_s
        self._ended = threading.Event()
        self._until_ms = math.inf
        self.is_late = False
        self.resume()

    def pause(self) -> None:
        """Suspend the time limit until `resume`."""
        self._until_ms = math.inf

    def resume(self) -> None:
        """Start the whole time limit anew."""
        self._until_ms = self._plane.system.monotonic_ms() + self._timeout_ms

    def run(self) -> None:
        """Wait for the statement's end or its time limit; then cancel it each second, and end Spark
        at last.
        """
        while (left_ms := self._until_ms - self._plane.system.monotonic_ms()) > 0:
            if self._ended.wait(min(left_ms, 1000 * _STEP_S) / 1000):
                return
        self.is_late = True
        for _ in range(1 + int(min(_GRACE_S_MAX, self._timeout_ms / 1000) / _STEP_S)):
            try:
                self._plane.cancel(self.group)
            except Exception as error:
                logger.warning("a statement that is late can't be cancelled yet: %s", error)
            if self._ended.wait(_STEP_S):
                return
        self._plane.end_spark()

    def cancel(self) -> None:
        """Cancel the statement's Spark jobs now."""
        self._plane.cancel(self.group)

    def stop(self) -> None:
        """Note that the statement has ended."""
        self._ended.set()


def _refuse(reason: str | None) -> None:
    """Raise InvalidRequest with the reason; None passes."""
    if reason is not None:
        raise InvalidRequest(f"the statement isn't served: {reason}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and the errors that caused it, or during which it was raised."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _process() -> subprocess.Popen[bytes] | None:
    """Return the JVM's process; None if this process didn't start it."""
    context = context_class()
    gateway: Any = None if context is None else context._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return process


def _is_dead() -> bool:
    process = _process()
    return process is not None and process.poll() is not None


def _answers(spark: SparkSession) -> bool:
    """Return whether Spark still carries out a job.

    Kills a JVM that this process started if it doesn't answer within 20 seconds.
    """
    process = _process()
    timer = threading.Timer(_PROBE_S, process.kill) if process is not None else None
    if timer is not None:
        timer.start()
    try:
        with spark_errors():
            return spark.range(1).count() == 1
    except Exception as error:
        logger.warning("Spark doesn't answer any more: %s", error)
        return False
    finally:
        if timer is not None:
            timer.cancel()


def _end_jvm() -> None:
    """Kill the JVM, and make PySpark forget it, so that a session can be started again.

    A JVM that this process didn't start goes on; PySpark forgets it too.
    """
    context: Any = context_class()
    process = _process()
    if process is not None:
        process.kill()
        process.wait()
    if context is None:
        return
    with context._lock:
        if context._gateway is not None:
            with suppress(Exception):  # it says goodbye to a process that has ended
                context._gateway.shutdown()
        context._gateway = None
        context._jvm = None
        context._active_spark_context = None
    SparkSession._instantiatedSession = None
