"""A branch of a lake, as users hold it: a session on the branch, which publishes or drops it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlake.errors import InvalidRequest
from txlake.lake.lake import LakeSession
from txlake.lake.read_versions import named_table
from txlake.session.branches import drop_branch, publish, rebase
from txlake.session.session import Session
from txlake.sql.statements import DescribeBranch, ExplainPublish, ReadChanges

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame


class Branch(LakeSession):
    """A session on a branch. All of its statements and methods work on the branch's tables.

    What it commits is seen by other sessions on the branch, and by nobody else before `publish`.
    """

    def __init__(self, session: Session, name: str) -> None:
        super().__init__(session)
        self._name = name

    @property
    def name(self) -> str:
        """The branch's name."""
        return self._name

    def publish(self, *, per_table: bool = False) -> None:
        """Let the lake, or the branch that this one was made from, have all of its changes at one
        instant. The branch ends with that, and this session works on what it was published to.

        Each table gets one version with the net changes. With `per_table` a table that nobody else
        has changed since the branch began gets the branch's versions one by one.

        Raises:
            Conflict: commits since the branch began conflict with it; nothing is changed.
            InvalidRequest: the branch has ended, a transaction is open, another branch was made
                from it, or a table or name isn't what it was when the branch began.
            Unavailable: another session committed on the branch meanwhile; publish again.
        """
        publish(self._session, self._name, per_table=per_table)
        self._session.leave_branch()

    def explain_publish(self) -> DataFrame:
        """Return what `publish` would meet now, table by table; change nothing.

        Columns: `table`, `base_version`, `newest_version`, `answer` ("publishes", or the name of
        the error) and `detail`. Raises InvalidRequest as `publish`.
        """
        return self._run(ExplainPublish(self._name))

    def rebase(self) -> None:
        """Let the branch begin at the newest instant of what it was made from, with its own changes
        on top. Raises as `publish`; the branch stays as it was then.
        """
        rebase(self._session, self._name)
        self._session.use_branch(self._name)

    def changes(
        self,
        table: str | None = None,
        from_version: int | None = None,
        to_version: int | None = None,
        *,
        from_timestamp: str | datetime | None = None,
        to_timestamp: str | datetime | None = None,
    ) -> DataFrame:
        """Return the tables that the branch changed; of one `table` the rows that it changed.

        The columns are `table`, `change` ("changed", "created", "renamed", "dropped", or "changed,
        renamed"), the versions that the table had when the branch began and has now, `base_version`
        and `version`, and `rows_inserted`, `rows_updated` and `rows_deleted`: net changes of a
        table with a change data feed, of others the sums of what statements reported; None of a
        dropped one.

        The rows of a table have its columns and `_change_type`: what publishing would change. A
        table without a change data feed has an updated row as `delete` and `insert`. With one of
        the other arguments it is the branch's change data feed, as of `lake.changes`.

        Raises InvalidRequest if the branch has ended or doesn't have the table, for a path table,
        for columns that can't be compared without a change data feed, and as `lake.changes`.
        """
        if table is None:
            return self._run(DescribeBranch(self._name))
        if {from_version, to_version, from_timestamp, to_timestamp} == {None}:
            return self._run(ReadChanges(named_table(table), None))
        return super().changes(
            table,
            from_version,
            to_version,
            from_timestamp=from_timestamp,
            to_timestamp=to_timestamp,
        )

    def drop(self) -> None:
        """Throw the branch away. Raises InvalidRequest if it has ended, a transaction is open in
        this session, or another branch was made from it.
        """
        if self._session.current is not None:
            raise InvalidRequest(f"branch {self._name}: a transaction is open; end it first")
        self._session.leave_branch()
        drop_branch(self._session, self._name)
