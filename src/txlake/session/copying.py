"""COPY INTO: files of a folder that were not copied before are appended, each exactly once.

Owns which files are new. Each copied file is an application id of the table (`copy-into:<URL>`), so
that two loads at the same time can't both copy it: the later one gets a
ConcurrentTransactionException and finds the file copied when it runs again.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from txlake.errors import InvalidRequest
from txlake.ports import StoredObject
from txlake.protocol.actions import Txn
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.session.growth import grown
from txlake.spark import inserts, rows
from txlake.spark.inserts import Placement
from txlake.spark.reading import spark_url
from txlake.spark.types import delta_schema, quote, spark_schema
from txlake.spark.work import Work
from txlake.spark.writing import VIOLATION, VIOLATION_ROW
from txlake.sql import hidden
from txlake.statements import CopyInto, Reference, TablePath
from txlake.storage import join_url
from txlake.transaction.change import Change

_File: TypeAlias = tuple[str, StoredObject]
_APP_PREFIX = "copy-into:"
_GLOB = frozenset("*?[")
_PATTERN_SIGN = re.compile(r"[{}\[\]*?\\]")


def copy_into(context: Context, statement: CopyInto) -> Mapping[str, int]:
    """COPY INTO. Raises InvalidRequest when the place holds no such file."""
    handle = context.require(statement.table)
    new = _new_files(context, handle, statement)
    if not new:
        return {"num_affected_rows": 0, "num_inserted_rows": 0, "num_skipped_corrupt_files": 0}
    frame, work = _read(context, handle, statement, new)
    change = inserts.append(work, frame, _placement(statement))
    context.transaction.stage(handle, _with_files(context, change, new))
    return {**change.affected, "num_skipped_corrupt_files": 0}


def validate(context: Context, statement: CopyInto) -> DataFrame:
    """COPY INTO ... VALIDATE: the rows that it would copy, checked; nothing is written.

    Raises InvalidRequest with the row when one violates a constraint.
    """
    handle = context.require(statement.table)
    new = _new_files(context, handle, statement)
    if not new:
        return context.spark.createDataFrame([], spark_schema(context.snapshot(handle).schema))
    table = context.transaction.open(handle)
    before = table.savepoint()
    frame, work = _read(context, handle, statement, new)
    placement, snapshot = _placement(statement), work.snapshot
    if placement.by_name:
        frame = rows.by_name(frame, snapshot)
    else:
        frame = rows.by_position(frame, snapshot, placement.columns)
    if statement.validate_rows is not None and statement.validate_rows >= 0:
        frame = frame.limit(statement.validate_rows)
    checked = rows.checked(frame, snapshot)
    if VIOLATION in checked.columns:
        for found in checked.where(F.col(VIOLATION).isNotNull()).limit(1).collect():
            raise InvalidRequest(
                f"{snapshot.table}: {found[VIOLATION]} is violated by the row "
                f"{found[VIOLATION_ROW]}; nothing was written"
            )
    table.rollback_to(before)
    return frame


def _placement(statement: CopyInto) -> Placement:
    by_name = statement.columns is None and not statement.by_position
    return Placement(by_name=by_name, columns=statement.columns)


def _read(
    context: Context, handle: Handle, statement: CopyInto, new: Sequence[_File]
) -> tuple[DataFrame, Work]:
    """The files' rows, and the work on the table, with their new columns if they may be added."""
    frame = _rows(context, statement, [url for url, _ in new])
    work = context.work(handle)
    if _is_on(statement, "mergeSchema"):
        work = grown(context, handle, work, delta_schema(frame.schema))
    return frame, work


def _new_files(context: Context, handle: Handle, statement: CopyInto) -> list[_File]:
    """The files that weren't copied yet; with `force` all of them."""
    files = _files(context, statement)
    if _is_on(statement, "force"):
        return files
    table = context.transaction.open(handle)
    return [file for file in files if table.app_version(_APP_PREFIX + file[0]) is None]


def _is_on(statement: CopyInto, option: str) -> bool:
    """Whether a copy option says true; letter case of its name doesn't count."""
    options = {name.lower(): value for name, value in statement.copy_options}
    return options.get(option.lower(), "false").lower() == "true"


def _with_files(context: Context, change: Change, new: Sequence[_File]) -> Change:
    now_ms = context.engine.system.now_ms()
    marks = tuple(
        Txn(app_id=_APP_PREFIX + url, version=stored.modified_ms, last_updated=now_ms)
        for url, stored in new
    )
    return Change(
        operation="COPY INTO",
        parameters=change.parameters,
        actions=(*marks, *change.actions),
        metrics=change.metrics,
        reads=change.reads,
    )


def _files(context: Context, statement: CopyInto) -> list[_File]:
    """The files that the statement names, by URL."""
    folder, pattern = statement.location, statement.pattern
    head, _, tail = folder.rstrip("/").rpartition("/")
    if _GLOB & set(tail):
        folder, pattern = head, tail
    store = context.engine.store_at(folder)
    found = {one.path: one for one in store.list("") if not _is_hidden(one.path)}
    if not found and head:
        parent = context.engine.store_at(head)
        single = parent.head(unquote(tail) if "://" in head else tail)
        if single is not None:
            store, found = parent, {single.path: single}
    if statement.files:
        missing = [name for name in statement.files if name not in found]
        if missing:
            raise InvalidRequest(f"COPY INTO {statement.table}: no file {missing[0]!r} at {folder}")
        found = {name: found[name] for name in statement.files}
    if pattern is not None:
        found = {path: one for path, one in found.items() if fnmatch.fnmatch(path, pattern)}
    if not found:
        raise InvalidRequest(
            f"COPY INTO {statement.table}: there is no file at {statement.location}"
        )
    return [(join_url(store.url, path), one) for path, one in sorted(found.items())]


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _spark_path(url: str) -> str:
    """The file as Spark's readers take it: not encoded, and nothing of it a pattern."""
    return _PATTERN_SIGN.sub(r"\\\g<0>", unquote(spark_url(url)))


def _rows(context: Context, statement: CopyInto, urls: list[str]) -> DataFrame:
    reader = context.spark.read.format(statement.file_format.lower())
    reader = reader.options(**dict(statement.format_options))
    frame = reader.load([_spark_path(url) for url in urls])
    if statement.select is None or statement.location_span is None:
        return frame
    start, end = statement.location_span
    place = Reference(TablePath(statement.location), None, start, end)
    query = replace(statement.select, references=(place,))
    if hidden.names_files(query.text) and hidden.COLUMN not in frame.columns:
        query = hidden.hiding(query, [start])
        frame = frame.select("*", hidden.COLUMN)
    view = quote(context.view_of(frame))
    return context.spark.sql(query.rewritten(lambda _: view))
