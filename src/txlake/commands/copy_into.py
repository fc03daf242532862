"""COPY INTO: files of a folder that were not copied before are appended, each exactly once.

Owns which files are new. Each copied file is an application id of the table (`copy-into:<URL>`), so
that two loads at the same time can't both copy it: the later one gets a
ConcurrentTransactionException and finds the file copied when it runs again.
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

from txlake.commands.frame_reads import writing
from txlake.commands.schema_evolution import grown
from txlake.conflict.locking import LockMode
from txlake.errors import CorruptTable, InvalidRequest
from txlake.ports import StoredObject
from txlake.protocol.actions import Txn
from txlake.session.command import Answer, command, giving_counts, giving_frame, its_table
from txlake.session.context import Context
from txlake.session.engine import Handle
from txlake.spark import rows
from txlake.spark.identities import given_names, next_value, refuse_given
from txlake.spark.types import quote
from txlake.spark.writing import VIOLATION, VIOLATION_ROW
from txlake.sql import metadata_column
from txlake.statements import CopyInto, Reference, TablePath
from txlake.storage import join_url
from txlake.transaction.change import Change
from txlake.transaction.data_plane import Placement, TableData

_File: TypeAlias = tuple[str, StoredObject]
_APP_PREFIX = "copy-into:"
_GLOB = frozenset("*?[")
_NAMELESS = "_c0"
"""What Spark calls the first column of a CSV file that is read without a row of names."""


def copy_into(context: Context, statement: CopyInto) -> Mapping[str, int]:
    """COPY INTO. Raises InvalidRequest when the place holds no such file."""
    handle = context.require(statement.table)
    new = _new_files(context, handle, statement)
    if not new:
        return {"num_affected_rows": 0, "num_inserted_rows": 0, "num_skipped_corrupt_files": 0}
    frame, work = _read(context, handle, statement, new)
    with _their_rows(statement, new):
        change = work.append(frame, _placement(_ordered(statement, frame, work)))
    context.transaction.stage(handle, _with_files(context, change, new))
    return {**change.affected, "num_skipped_corrupt_files": 0}


@contextmanager
def _their_rows(statement: CopyInto, new: Sequence[_File]) -> Iterator[None]:
    """A row that can't be read is the copied file's fault, not the table's."""
    try:
        yield
    except CorruptTable as error:
        said = str(error)
        for url, _ in new:
            if url in said or unquote(url) in said:
                _, _, reason = said.partition("can't be read: ")
                raise InvalidRequest(
                    f"COPY INTO {statement.table}: a row of {url} doesn't fit: {reason or said}; "
                    "nothing was copied"
                ) from error
        raise


def validate(context: Context, statement: CopyInto) -> DataFrame:
    """COPY INTO ... VALIDATE: the rows that it would copy, checked; nothing is written.

    Raises InvalidRequest with the row when one violates a constraint.
    """
    handle = context.require(statement.table)
    new = _new_files(context, handle, statement)
    if not new:
        return context.plane.frame(context.snapshot(handle).schema, [])
    table = context.transaction.open(handle)
    before = table.savepoint()
    frame, work = _read(context, handle, statement, new)
    placement, snapshot = _placement(_ordered(statement, frame, work)), work.snapshot
    refuse_given(snapshot, given_names(frame, snapshot, placement))
    identity = partial(next_value, snapshot)
    if placement.by_name:
        frame = rows.by_name(frame, snapshot, identity)
    else:
        frame = rows.by_position(frame, snapshot, placement.columns, identity)
    if statement.validate_rows is not None and statement.validate_rows >= 0:
        frame = frame.limit(statement.validate_rows)
    checked = rows.checked(frame, snapshot)
    if VIOLATION in checked.columns:
        for found in checked.where(F.col(VIOLATION).isNotNull()).limit(1).collect():
            raise InvalidRequest(
                f"{snapshot.table}: {found[VIOLATION]} is violated by the row "
                f"{found[VIOLATION_ROW]}; nothing was written"
            )
    table.take_back(before)
    return frame


def _placement(statement: CopyInto) -> Placement:
    by_name = statement.columns is None and not statement.by_position
    return Placement(by_name=by_name, columns=statement.columns)


def _ordered(statement: CopyInto, frame: DataFrame, work: TableData) -> CopyInto:
    """By position where Fabric's form reads Parquet, unless the names there are the table's."""
    if statement.fields is None or statement.file_format != "PARQUET":
        return statement
    names = {name.lower() for name in frame.columns}
    own = {name.lower() for name in work.snapshot.schema.names}
    return replace(statement, by_position=statement.columns is not None or names != own)


def _read(
    context: Context, handle: Handle, statement: CopyInto, new: Sequence[_File]
) -> tuple[DataFrame, TableData]:
    """The files' rows, and the work on the table, with their new columns if they may be added."""
    frame = _rows(context, statement, [url for url, _ in new])
    work = context.work(handle)
    if _is_on(statement, "mergeSchema"):
        work = grown(context, handle, work, context.plane.schema_of(frame), "COPY INTO")
    elif _placement(statement).by_name and _NAMELESS in _strange(frame, work):
        raise InvalidRequest(
            f"COPY INTO {statement.table}: the CSV files give their columns no names; "
            "FORMAT_OPTIONS ('header' = 'true') takes them from the first row, and COPY INTO "
            f"{statement.table} (column, ...) takes the fields in this order"
        )
    return frame, work


def _strange(frame: DataFrame, work: TableData) -> list[str]:
    """The columns of rows that the table doesn't have."""
    return [name for name in frame.columns if work.snapshot.schema.find(name) is None]


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
        identity_marks=change.identity_marks,
    )


def _files(context: Context, statement: CopyInto) -> list[_File]:
    """The files that the statement names, by URL, each once."""
    found: dict[str, _File] = {}
    for place in (statement.location, *statement.also):
        found.update(
            (one[0], one) for one in _files_at(context, replace(statement, location=place))
        )
    return list(found.values())


def _files_at(context: Context, statement: CopyInto) -> list[_File]:
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


def _rows(context: Context, statement: CopyInto, urls: list[str]) -> DataFrame:
    frame = context.plane.files(statement.file_format, dict(statement.format_options), urls)
    if statement.fields is not None:
        return _fields(statement, frame)
    if statement.select is None or statement.location_span is None:
        return frame
    start, end = statement.location_span
    place = Reference(TablePath(statement.location), None, start, end)
    query = replace(statement.select, references=(place,))
    if metadata_column.names_files(query.text) and metadata_column.COLUMN not in frame.columns:
        query = metadata_column.hiding(query, [start])
        frame = frame.select("*", metadata_column.COLUMN)
    view = quote(context.view_of(frame))
    return context.plane.query(query.rewritten(lambda _: view), {})


def _fields(statement: CopyInto, frame: DataFrame) -> DataFrame:
    """The fields of files that Fabric's form asks for, in the order of the statement's columns."""
    if statement.file_format == "CSV":
        frame = frame.toDF(*(f"field_{number}" for number in range(1, len(frame.columns) + 1)))
    if statement.fields:
        width = len(frame.columns)
        if max(statement.fields) > width:
            raise InvalidRequest(
                f"COPY INTO {statement.table}: field {max(statement.fields)} is asked for, and the "
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


_copying, _validating = giving_counts(copy_into), giving_frame(validate)


def _copied(context: Context, statement: CopyInto) -> Answer:
    run = _copying if statement.validate_rows is None else _validating
    return run(context, statement)


COMMANDS = dict([command(CopyInto, writing(_copied), its_table(LockMode.IX))])
