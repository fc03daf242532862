"""`TableBranch`: a branch of one path table, which users write, audit, and publish or drop."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from txlake.lake.tables.errors import raises_delta_spark_errors
from txlake.lake.tables.executor import Executor
from txlake.protocol.branching import branch_place
from txlake.sql.statements import (
    DescribeBranch,
    DropBranch,
    ExplainPublish,
    PublishBranch,
    RebaseBranch,
    TablePath,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txlake.lake.tables.table import DeltaTable


class TableBranch:
    """A branch of a table that is addressed by its path; `DeltaTable.branch` returns it.

    What is committed on it is seen by nobody who reads the table, before `publish`.

    Attributes:
        name: the branch's name.
        path: the table on the branch, for whatever takes a table's path: SQL, readers, writers.
        table: the same as a DeltaTable.
    """

    def __init__(self, executor: Executor, origin: TablePath, name: str, table: DeltaTable) -> None:
        """Make one; called by `DeltaTable.branch`."""
        self._executor = executor
        self._origin = origin
        self.name = name
        self.path = branch_place(origin.location, name)
        self.table = table

    def __repr__(self) -> str:
        return f"TableBranch({self.path})"

    def __enter__(self) -> TableBranch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the branch as it is."""

    @raises_delta_spark_errors
    def toDF(self) -> DataFrame:
        """Return the rows of the table on the branch. Raises an AnalysisException if the branch has
        ended.
        """
        return self.table.toDF()

    @raises_delta_spark_errors
    def publish(self) -> None:
        """Let the table have all of the branch's changes as one version. The branch ends with that.

        Raises a Conflict if commits since the branch began conflict with it, and nothing is
        changed; an AnalysisException if it has ended, or its changes can't be published as they
        are; an OutcomeUnknown if it may be published.
        """
        self._executor.perform(PublishBranch(self.name, self._origin))

    @raises_delta_spark_errors
    def explain_publish(self) -> DataFrame:
        """Return what `publish` would meet now, as `EXPLAIN PUBLISH BRANCH`; change nothing.

        Raises an AnalysisException as `publish`.
        """
        return self._executor.execute(ExplainPublish(self.name, self._origin))

    @raises_delta_spark_errors
    def changes(self) -> DataFrame:
        """Return the versions that the branch began with and has now, as `DESCRIBE BRANCH`; no row
        if it has changed nothing.

        Raises an AnalysisException if the branch has ended.
        """
        return self._executor.execute(DescribeBranch(self.name, self._origin))

    @raises_delta_spark_errors
    def rebase(self) -> None:
        """Let the branch begin at the table's newest version, with its own changes on top.

        Raises as `publish`; the branch stays as it was then.
        """
        self._executor.perform(RebaseBranch(self.name, self._origin))

    @raises_delta_spark_errors
    def drop(self) -> None:
        """Throw the branch away. Raises an AnalysisException if it has ended."""
        self._executor.perform(DropBranch(self.name, table=self._origin))
