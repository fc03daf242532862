"""The arguments `read_version` and `reads`: versions of tables that were read elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from txlake.errors import InvalidRequest
from txlake.lake.tables.expressions import condition_of
from txlake.session.versions_read import VersionRead, subject_of
from txlake.sql.statements import Statement, Table, table_of

if TYPE_CHECKING:
    from pyspark.sql import Column


def versions_read(
    read_version: int | Mapping[str, int] | None,
    reads: str | Column | Mapping[str, str | Column] | None,
    subject: Callable[[], Table],
) -> tuple[VersionRead, ...]:
    """Return the versions of tables that the caller read elsewhere; none if none is given.

    Args:
        read_version: a version, or versions by the names or places of tables.
        reads: the condition of the rows that were read, or conditions by table.
        subject: returns the table that one version is about.

    Raises InvalidRequest for `reads` without a version of its table, and for values that are no
    versions; a TypeError or ParseException for values that are no conditions, as `condition_of`.
    """
    if read_version is None:
        if reads is not None:
            raise InvalidRequest(
                "reads says which rows of a version were read: give read_version too, or leave "
                "reads out"
            )
        return ()
    if not isinstance(read_version, Mapping):
        if isinstance(reads, Mapping):
            raise InvalidRequest(
                "reads has conditions by table: give read_version by table too, {'name': version}"
            )
        rows = condition_of(reads, (), "reads")
        return (VersionRead(table=subject(), version=_version(read_version), rows=rows),)
    if not read_version:
        raise InvalidRequest("read_version={}: expected a version, or versions by table")
    conditions = _by_table(reads, read_version)
    return tuple(
        VersionRead(
            table=named_table(name),
            version=_version(version),
            rows=condition_of(conditions.get(name), (), "reads"),
        )
        for name, version in read_version.items()
    )


def versions_of_script(
    statements: Sequence[Statement],
    read_version: int | Mapping[str, int] | None,
    reads: str | Column | Mapping[str, str | Column] | None,
) -> tuple[VersionRead, ...]:
    """Return the versions of tables that the caller of a script read elsewhere.

    Raises InvalidRequest for versions of several statements, and as `versions_read` and
    `subject_of`.
    """
    if read_version is not None and len(statements) != 1:
        raise InvalidRequest(
            f"read_version goes with one statement, found {len(statements)}: run them one by one, "
            "in a transaction if they belong together"
        )
    return versions_read(read_version, reads, lambda: subject_of(statements[0]))


def _by_table(
    reads: str | Column | Mapping[str, str | Column] | None, versions: Mapping[str, int]
) -> Mapping[str, str | Column]:
    """Return the conditions by table. Raises InvalidRequest for one that is of no single table."""
    if reads is None:
        return {}
    if isinstance(reads, Mapping):
        others = [name for name in reads if name not in versions]
        if others:
            raise InvalidRequest(
                f"reads has a condition for {others[0]!r}, which read_version doesn't name: "
                f"expected {', '.join(map(repr, versions))}"
            )
        return reads
    if len(versions) > 1:
        raise InvalidRequest(
            f"reads is one condition, and read_version names {len(versions)} tables: give the "
            "conditions by table, {'name': condition}"
        )
    return dict.fromkeys(versions, reads)


def _version(value: object) -> int:
    """Return a version. Raises InvalidRequest for any other value."""
    if type(value) is not int or value < 0:
        raise InvalidRequest(
            f"read_version: expected a table's version, a whole number of 0 or more, found "
            f"{value!r:.80}"
        )
    return value


def named_table(table: str) -> Table:
    """Return the table of a name, path or URL. Raises InvalidRequest if it is none of them."""
    if not isinstance(table, str):
        raise InvalidRequest(f"expected a table's name or place, found {table!r}")
    return table_of(table)
