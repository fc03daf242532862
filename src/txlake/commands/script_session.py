"""A script's environment: its statements run in a session's transaction, its variables in Spark.

A script's variable is a session variable of Spark's: a column of the same name takes precedence, as
in Spark. A session variable of the same name has its former value again when the script ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as T

from txlake.errors import InvalidRequest
from txlake.local.types import quote
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.spark.spark_errors import spark_errors
from txlake.spark.spark_sessions import create_frame
from txlake.spark.types import type_sql
from txlake.sql import as_query, is_literal, sql_literal
from txlake.sql.statements import Select, SqlText, Statement

_MARK = "txlake script"
_WITH_LITERALS = (T.BooleanType, T.NumericType, T.StringType, T.BinaryType, T.DateType)
_Before = tuple[T.StructType, Row] | None


class ScriptSession:
    """The session that a script runs in; without a transaction each statement has its own."""

    def __init__(self, session: Session, transaction: Transaction | None) -> None:
        self._session = session
        self._transaction = transaction
        self._is_marked = False

    @property
    def _spark(self) -> SparkSession:
        return self._session.spark

    def run(self, statement: Statement) -> None:
        """Run a statement and drop its result."""
        self._session.execute_in(self._transaction, statement)

    def truth(self, condition: SqlText) -> bool:
        """Return whether a condition is true; null is not.

        Raises InvalidRequest for a value that isn't boolean.
        """
        value = self._value(as_query(condition))
        if value is not None and not isinstance(value, bool):
            raise InvalidRequest(f"expected a condition, found {value!r} of {condition.text!r}")
        return bool(value)

    def text(self, query: SqlText) -> str:
        """Return the text that is a query's one value. Raises InvalidRequest for anything else."""
        value = self._value(query)
        if not isinstance(value, str):
            raise InvalidRequest(f"expected a text, found {value!r} of {query.text!r}")
        return value

    def constant(self, expression: SqlText) -> SqlText:
        """Return the present value of an expression as a literal, if its type has one.

        Otherwise return the expression. In another statement the literal stands for the value;
        names in it would mean columns there.
        """
        if is_literal(expression.text):
            return expression
        frame = self._query(as_query(expression)).toDF("value")
        kind = frame.schema[0].dataType
        if isinstance(kind, T.TimestampType):
            # Python's own times have another zone, and two of them are one in autumn.
            value, literal = "unix_micros(value)", "timestamp_micros({})"
        elif isinstance(kind, T.TimestampNTZType):
            value, literal = "CAST(value AS STRING)", "CAST({} AS TIMESTAMP_NTZ)"
        elif isinstance(kind, _WITH_LITERALS):
            value, literal = "value", f"CAST({{}} AS {type_sql(kind)})"
        else:
            return expression
        with spark_errors():
            [row] = frame.selectExpr(value).collect()
        rules = self._session.engine.plane.text_rules
        return SqlText(literal.format(sql_literal(row[0], rules=rules)))

    def declare(self, name: str, data_type: str | None, default: SqlText | None) -> _Before:
        """Declare a variable; return what `restore` needs to undo that.

        Without a type it has the default's. Nothing is declared if the default fails.
        """
        before = self._before(name)
        kind = data_type
        if kind is None:
            assert default is not None, "the parser wants one of the two"
            kind = type_sql(self._query(default).schema[0].dataType)
        with spark_errors():
            self._spark.sql(f"DECLARE OR REPLACE VARIABLE {quote(name)} {kind}")
            if default is not None:
                try:
                    self.assign([name], default)
                except BaseException:
                    self.restore(name, before)
                    raise
        return before

    def restore(self, name: str, before: object) -> None:
        """Drop a variable, and restore the one that it replaced; `before` is None if there was
        none.
        """
        with spark_errors():
            self._spark.sql(f"DROP TEMPORARY VARIABLE IF EXISTS {quote(name)}")
            if isinstance(before, tuple):
                schema, row = before
                kind = type_sql(schema[0].dataType)
                self._spark.sql(f"DECLARE VARIABLE {quote(name)} {kind}")
                self._give([name], create_frame(self._spark, [row], schema))

    def assign(self, names: Sequence[str], query: SqlText) -> None:
        """Assign the values of a query's one row to variables; nulls if it has no row."""
        self._give(names, self._query(query))

    def each(self, query: SqlText, variable: str | None) -> Iterator[None]:
        """Yield once for each row of a query, whose columns are variables meanwhile.

        `variable`, if any, is a further one with the row as a struct. The rows are read first.
        Raises InvalidRequest for columns of one name.
        """
        frame = self._query(query)
        columns = list(frame.columns)
        if len({name.lower() for name in columns}) < len(columns):
            raise InvalidRequest(f"the columns of FOR have names of their own, found {columns}")
        kinds = [(item.name, type_sql(item.dataType)) for item in frame.schema]
        with spark_errors():
            rows = frame.collect()
        if variable is not None:
            fields = ", ".join(f"{quote(name)}: {kind}" for name, kind in kinds)
            kinds.append((variable, f"STRUCT<{fields}>"))
        declared: list[tuple[str, _Before]] = []
        try:
            for name, kind in kinds:
                declared.append((name, self.declare(name, kind, None)))
            for row in rows:
                one = create_frame(self._spark, [row], frame.schema)
                self._give(columns, one)
                if variable is not None:
                    self._give([variable], one.selectExpr("struct(*)"))
                yield
        finally:
            for name, before in reversed(declared):
                self.restore(name, before)

    def mark(self) -> Callable[[], None]:
        """Return a function that undoes the changes of tables made after this call.

        It replaces the mark of the call before.
        """
        transaction = self._transaction
        assert transaction is not None, "a script has a transaction"
        if self._is_marked:
            transaction.release(_MARK)
        transaction.savepoint(_MARK)
        self._is_marked = True
        return partial(transaction.rollback_to, _MARK)

    def _before(self, name: str) -> _Before:
        """Return a variable's schema and row; None if there is no such variable."""
        try:
            with spark_errors():
                frame = self._spark.sql(f"SELECT session.{quote(name)} AS value")
                [row] = frame.collect()
        except InvalidRequest:
            return None
        return frame.schema, row

    def _give(self, names: Sequence[str], frame: DataFrame) -> None:
        """Assign a frame's one row to variables.

        Raises InvalidRequest if there aren't as many columns.
        """
        if len(frame.columns) != len(names):
            raise InvalidRequest(
                f"expected {len(names)} columns for {', '.join(names)}, found {len(frame.columns)}"
            )
        named = ", ".join(map(quote, names))
        with spark_errors():
            self._spark.sql(f"SET VARIABLE ({named}) = (SELECT * FROM {{rows}})", rows=frame)

    def _query(self, query: SqlText) -> DataFrame:
        return self._session.execute_in(self._transaction, Select(query))

    def _value(self, query: SqlText) -> object:
        """Return the first value of a query's first row, which has to exist."""
        frame = self._query(query)
        with spark_errors():
            return frame.collect()[0][0]
