"""A caller's script of SQL: judged and run, by whichever door it came.

Owns what a caller may run: statements about the lake's own tables by name, no changes by a
read-only token, within the statement's time. What is served is in `refusals`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from pyspark.sql import DataFrame

from txlake.errors import TxlakeError
from txlake.lake.lake import LakeSession
from txlake.lake.read_versions import versions_of_script
from txlake.server.api_errors import ApiError
from txlake.server.calls import Limits
from txlake.server.refusals import is_write, refusal_reason, walk_parts
from txlake.server.tokens import ANYONE, Caller
from txlake.session.command import AsRows, words_of
from txlake.session.permission import BranchesOnly
from txlake.session.session import Session
from txlake.session.versions_read import VersionRead
from txlake.session.views.describe import Rows
from txlake.spark.served import ServedPlane, Watch
from txlake.sql import parse
from txlake.sql.markers import Arguments
from txlake.sql.statements import SetLockTimeout, Statement


def set_user(session: Session, caller: Caller) -> None:
    """Let a session be its caller's, with what he may do.

    As the owner of branches he isn't the user of the same name of an operating system.
    """
    if caller == ANYONE:
        return
    session.user_name = caller.user_name
    session.permission = BranchesOnly(session.user_name) if caller.branches else None


def statement_timeout(session: Session, limits: Limits) -> AbstractContextManager[Watch | None]:
    """Return the statement's time limit for what Spark runs; none for an engine without Spark."""
    plane = session.engine.plane
    if isinstance(plane, ServedPlane):
        return plane.statement(limits.statement_s)
    return nullcontext()


def judged(
    session: Session, caller: Caller, limits: Limits, text: str, args: Arguments | None
) -> Sequence[Statement]:
    """Return a script's statements, if this caller may run them.

    An error fails the session's open transaction, as a failed statement does. Raises InvalidRequest
    for a text that can't be parsed, and as `check`.
    """
    try:
        rules = session.engine.plane.text_rules  # of a Spark that may have ended
        statements = parse(text, args, rules)
        check(caller, limits, statements)
    except (TxlakeError, ApiError) as error:
        session.fail(error)
        raise
    return statements


def judged_versions(
    session: Session,
    statements: Sequence[Statement],
    read_version: int | Mapping[str, int] | None,
    reads: str | Mapping[str, str] | None,
) -> Sequence[VersionRead]:
    """Return the versions that the script's caller read elsewhere, of the lake's own tables.

    An error fails the session's open transaction. Raises ApiError (403) for tables and conditions
    that aren't served, and as `read_versions.versions_of_script`.
    """
    try:
        versions = versions_of_script(statements, read_version, reads)
        reason = refusal_reason(versions)
        if reason is not None:
            raise ApiError("PermissionDeniedException", reason)
    except (TxlakeError, ApiError) as error:
        session.fail(error)
        raise
    return versions


def run(
    session: Session,
    text: str,
    args: Arguments | None,
    statements: Sequence[Statement],
    versions_read: Sequence[VersionRead] = (),
) -> DataFrame | Rows:
    """Run a script that was judged, and return its last statement's result.

    `versions_read`: what `judged_versions` returned for it. A DataFrame's rows are read when they
    are asked for. Raises as the statements.
    """
    return LakeSession(session)._run_sql(
        text, args, AsRows(), parsed=statements, versions_read=versions_read
    )


def check(caller: Caller, limits: Limits, statements: Sequence[Statement]) -> None:
    """Raise ApiError (403) for a statement that isn't served, or not to this caller.

    A lock timeout out of bounds is refused too (400).
    """
    reason = refusal_reason(statements)
    if reason is not None:
        raise ApiError("PermissionDeniedException", reason)
    for statement in statements:
        for part in walk_parts(statement):
            _check_part(caller, limits, part)


def _check_part(caller: Caller, limits: Limits, part: object) -> None:
    """Raise ApiError for a write by a read-only caller (403), and a lock timeout out of bounds
    (400).
    """
    if is_write(part):
        require_writer(caller, words_of(part))  # type: ignore[arg-type]
    timeout_ms_max = limits.sql_lock_ms
    if isinstance(part, SetLockTimeout) and not 0 <= part.timeout_ms <= timeout_ms_max:
        raise ApiError(
            "InvalidParameterValueException",
            f"SET LOCK_TIMEOUT {part.timeout_ms}: a served session waits for 0 to {timeout_ms_max} "
            "ms",
        )


def require_writer(caller: Caller, words: str) -> None:
    """Raise ApiError (403) for a write, named by `words`, of a read-only caller.

    What a caller of branches may write depends on the branch in use: his session's permission
    decides, statement by statement.
    """
    if caller.read_only and not caller.branches:
        raise ApiError(
            "PermissionDeniedException",
            f"{caller.name!r} may only read, and {words} changes the lake",
        )
