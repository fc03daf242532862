"""COPY INTO: append a folder's files that were not copied before, each exactly once.

Each copied file is an application id of the table (`copy-into:<URL>`), so that two concurrent loads
can't both copy it: the later load gets a ConcurrentTransactionException and skips the file when it
runs again.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeAlias
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from txlake.commands.frame_reads import recording_frame_reads
from txlake.commands.schema_evolution import merge_schema
from txlake.commit.change import Change
from txlake.commit.data_plane import Placement, TableData
from txlake.conflict.locking import LockMode
from txlake.errors import CorruptTable, InvalidRequest
from txlake.local.control_columns import VIOLATION, VIOLATION_ROW
from txlake.local.types import quote
from txlake.ports import StoredObject
from txlake.protocol.actions import Txn
from txlake.session.command import Answer, command, giving_counts, giving_frame, its_table
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.spark import rows
from txlake.spark.identities import next_value, refuse_explicit_values, supplied_columns
from txlake.sql import metadata_column
from txlake.sql.statements import CopyInto, Reference, TablePath
from txlake.storage import join_url

_File: TypeAlias = tuple[str, StoredObject]
_APP_PREFIX = "copy-into:"
_GLOB = frozenset("*?[")
_UNNAMED_COLUMN = "_c0"
"""Spark's name for the first column of a CSV file that is read without a header."""


def copy_into(context: Context, statement: CopyInto) -> Mapping[str, int]:
    """Carry out COPY INTO: append the files that weren't copied before, and return counts.

    Raises InvalidRequest if there is no such table, if the location has no matching file, and for
    rows that don't fit the table.
    """
    handle = context.tables.require(statement.table)
    new = _new_files(context, handle, statement)
    if not new:
        return {"num_affected_rows": 0, "num_inserted_rows": 0, "num_skipped_corrupt_files": 0}
    frame, work = _read(context, handle, statement, new)
    with _naming_file(statement, new):
        change = work.append(frame, _placement(_ordered(statement, frame, work)))
    context.transaction.stage(handle, _with_file_marks(context, change, new))
    return {**change.affected, "num_skipped_corrupt_files": 0}


@contextmanager
def _naming_file(statement: CopyInto, new: Sequence[_File]) -> Iterator[None]:
    """Raise InvalidRequest for the block's CorruptTable about a copied file: the table isn't at
    fault. Any other error passes.
    """
    try:
        yield
    except CorruptTable as error:
        text = str(error)
        for url, _ in new:
            if url in text or unquote(url) in text:
                _, _, reason = text.partition("can't be read: ")
                raise InvalidRequest(
                    f"COPY INTO {statement.table}: a row of {url} doesn't fit: {reason or text}; "
                    "nothing was copied"
                ) from error
        raise


def validate(context: Context, statement: CopyInto) -> DataFrame:
    """Carry out COPY INTO ... VALIDATE: return the rows that would be copied.

    Nothing is written. Raises InvalidRequest as `copy_into`, naming the row when one violates a
    constraint.
    """
    handle = context.tables.require(statement.table)
    new = _new_files(context, handle, statement)
    if not new:
        return context.plane.frame(context.snapshot(handle).schema, [])
    table = context.transaction.open(handle)
    before = table.savepoint()
    frame, work = _read(context, handle, statement, new)
    placement, snapshot = _placement(_ordered(statement, frame, work)), work.snapshot
    refuse_explicit_values(snapshot, supplied_columns(frame, snapshot, placement))
    identity = partial(next_value, snapshot)
    if placement.by_name:
        frame = rows.by_name(frame, snapshot, identity)
    else:
        frame = rows.by_position(frame, snapshot, placement.columns, identity)
    if statement.validate_rows is not None and statement.validate_rows >= 0:
        frame = frame.limit(statement.validate_rows)
    checked = rows.checked(frame, snapshot)
    if VIOLATION in checked.columns:
        for row in checked.where(F.col(VIOLATION).isNotNull()).limit(1).collect():
            raise InvalidRequest(
                f"{snapshot.table}: {row[VIOLATION]} is violated by the row "
                f"{row[VIOLATION_ROW]}; nothing was written"
            )
    table.discard_staged(before)
    return frame


def _placement(statement: CopyInto) -> Placement:
    by_name = statement.columns is None and not statement.by_position
    return Placement(by_name=by_name, columns=statement.columns)


def _ordered(statement: CopyInto, frame: DataFrame, work: TableData) -> CopyInto:
    """Return the statement with columns matched by position, for Parquet in Fabric's form.

    If the files have exactly the table's column names, and no columns are listed, they match by
    name. Any other statement is returned as it is.
    """
    if statement.fields is None or statement.file_format != "PARQUET":
        return statement
    names = {name.lower() for name in frame.columns}
    table_names = {name.lower() for name in work.snapshot.schema.names}
    return replace(statement, by_position=statement.columns is not None or names != table_names)


def _read(
    context: Context, handle: Handle, statement: CopyInto, new: Sequence[_File]
) -> tuple[DataFrame, TableData]:
    """Return the files' rows, and the work on the table with `mergeSchema` applied.

    Raises InvalidRequest for CSV files whose columns have no names, where names are needed.
    """
    frame = _read_rows(context, statement, [url for url, _ in new])
    work = context.work(handle)
    if _is_on(statement, "mergeSchema"):
        work = merge_schema(context, handle, work, context.plane.schema_of(frame), "COPY INTO")
    elif _placement(statement).by_name and _UNNAMED_COLUMN in _unknown_columns(frame, work):
        raise InvalidRequest(
            f"COPY INTO {statement.table}: the CSV files give their columns no names; "
            "FORMAT_OPTIONS ('header' = 'true') takes them from the first row, and COPY INTO "
            f"{statement.table} (column, ...) takes the fields in this order"
        )
    return frame, work


def _unknown_columns(frame: DataFrame, work: TableData) -> list[str]:
    """Return the frame's columns that the table doesn't have."""
    return [name for name in frame.columns if work.snapshot.schema.find(name) is None]


def _new_files(context: Context, handle: Handle, statement: CopyInto) -> list[_File]:
    """Return the files that weren't copied before; with `force` all of them.

    The commit then depends on the files not being copied by another transaction.
    """
    files = _files(context, statement)
    if _is_on(statement, "force"):
        return files
    table = context.transaction.open(handle)
    return [file for file in files if table.app_version(_APP_PREFIX + file[0]) is None]


def _is_on(statement: CopyInto, option: str) -> bool:
    """Return whether a copy option is true; its name is case-insensitive."""
    options = {name.lower(): value for name, value in statement.copy_options}
    return options.get(option.lower(), "false").lower() == "true"


def _with_file_marks(context: Context, change: Change, new: Sequence[_File]) -> Change:
    """Return the change with an application id for each copied file, which records the copy."""
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
        identity_marks=change.identity_marks,
    )


def _files(context: Context, statement: CopyInto) -> list[_File]:
    """Return the files of all locations, each URL once."""
    files: dict[str, _File] = {}
    for location in (statement.location, *statement.more_locations):
        files.update(
            (file[0], file) for file in _files_at(context, replace(statement, location=location))
        )
    return list(files.values())


def _files_at(context: Context, statement: CopyInto) -> list[_File]:
    """Return the files at one location, sorted by path: a folder's, a single file, or a pattern's.

    Raises InvalidRequest if there is none, or one of FILES is missing.
    """
    folder, pattern = statement.location, statement.pattern
    head, _, tail = folder.rstrip("/").rpartition("/")
    if _GLOB & set(tail):
        folder, pattern = head, tail
    store = context.engine.store_at(folder)
    files = {stored.path: stored for stored in store.list("") if not _is_hidden(stored.path)}
    if not files and head:
        parent = context.engine.store_at(head)
        single = parent.head(unquote(tail) if "://" in head else tail)
        if single is not None:
            store, files = parent, {single.path: single}
    if statement.files:
        missing = [name for name in statement.files if name not in files]
        if missing:
            raise InvalidRequest(f"COPY INTO {statement.table}: no file {missing[0]!r} at {folder}")
        files = {name: files[name] for name in statement.files}
    if pattern is not None:
        files = {path: stored for path, stored in files.items() if fnmatch.fnmatch(path, pattern)}
    if not files:
        raise InvalidRequest(
            f"COPY INTO {statement.table}: there is no file at {statement.location}"
        )
    return [(join_url(store.url, path), stored) for path, stored in sorted(files.items())]


def _is_hidden(path: str) -> bool:
    """Return whether a part of the path starts with `_` or `.`."""
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _read_rows(context: Context, statement: CopyInto, urls: list[str]) -> DataFrame:
    """Return the files' rows, with the fields or the SELECT of the statement applied."""
    frame = context.plane.files(statement.file_format, dict(statement.format_options), urls)
    if statement.fields is not None:
        return _fields(statement, frame)
    if statement.select is None or statement.location_span is None:
        return frame
    start, end = statement.location_span
    place = Reference(TablePath(statement.location), None, start, end)
    query = replace(statement.select, references=(place,))
    if metadata_column.names_metadata(query.text) and metadata_column.COLUMN not in frame.columns:
        query = metadata_column.exclude_metadata(query, [start])
        frame = frame.select("*", metadata_column.COLUMN)
    view = quote(context.view_of(frame))
    return context.plane.query(query.rewritten(lambda _: view), {})


def _fields(statement: CopyInto, frame: DataFrame) -> DataFrame:
    """Return the files' fields that Fabric's form selects, in the order of its columns.

    Raises InvalidRequest for a field or property that the files lack.
    """
    if statement.file_format == "CSV":
        frame = frame.toDF(*(f"field_{number}" for number in range(1, len(frame.columns) + 1)))
    if statement.fields:
        width = len(frame.columns)
        if max(statement.fields) > width:
            raise InvalidRequest(
                f"COPY INTO {statement.table}: field {max(statement.fields)} is requested, but the "
                f"files have {width} fields"
            )
        return frame.select(*(quote(frame.columns[number - 1]) for number in statement.fields))
    if statement.file_format == "JSON" and statement.columns is not None:
        known = {name.lower() for name in frame.columns}
        missing = [name for name in statement.columns if name.lower() not in known]
        if missing:
            raise InvalidRequest(
                f"COPY INTO {statement.table}: the files have no property {missing[0]!r}; there "
                f"are {', '.join(frame.columns)}"
            )
        return frame.select(*(quote(name) for name in statement.columns))
    return frame


_copy, _validate = giving_counts(copy_into), giving_frame(validate)


def _run(context: Context, statement: CopyInto) -> Answer:
    run = _copy if statement.validate_rows is None else _validate
    return run(context, statement)


COMMANDS = dict([command(CopyInto, recording_frame_reads(_run), its_table(LockMode.IX))])
