"""Tables in memory for `txlake.Log`, and actions as engine authors write them."""

from __future__ import annotations

import json
from itertools import count

import txlake
from txlake.lake.log import Log, LogTransaction

Line = dict[str, dict[str, object]]
_names = count()


def schema(*columns: str) -> str:
    """A schema of columns written `name:type`; `!` after the type is NOT NULL."""
    fields = []
    for column in columns:
        name, _, kind = column.partition(":")
        fields.append(
            {"name": name, "type": kind.rstrip("!"), "nullable": kind[-1] != "!", "metadata": {}}
        )
    return json.dumps({"type": "struct", "fields": fields})


def settings(*columns: str, by: tuple[str, ...] = (), **configuration: str) -> Line:
    """A metaData action; `__` in a property stands for a dot."""
    return {
        "metaData": {
            "schemaString": schema(*columns),
            "partitionColumns": list(by),
            "configuration": {k.replace("__", "."): v for k, v in configuration.items()},
        }
    }


def new_log() -> Log:
    """A log on an empty place in memory."""
    return txlake.Log(f"memory://log-{next(_names)}")


def table(
    *actions: Line, columns: tuple[str, ...] = ("id:long", "p:string"), by: tuple[str, ...] = ()
) -> Log:
    """A table with these files."""
    log = new_log()
    log.start_transaction().commit([settings(*columns, by=by), *actions], operation="CREATE TABLE")
    return log


def add(path: str, ids: tuple[int, int] | None = None, **partition: str | None) -> Line:
    """An add; `ids` are the bounds of its column id."""
    fields: dict[str, object] = {
        "path": path,
        "partitionValues": partition,
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
    }
    if ids is not None:
        bounds = {"minValues": {"id": ids[0]}, "maxValues": {"id": ids[1]}, "nullCount": {"id": 0}}
        fields["stats"] = json.dumps({"numRecords": 2, **bounds})
    return {"add": fields}


def remove(path: str, **more: object) -> Line:
    """A remove by path alone."""
    return {"remove": {"path": path, **more}}


def moved(line: Line) -> Line:
    """The action as part of a rewrite."""
    return {name: {**fields, "dataChange": False} for name, fields in line.items()}


def paths(log: Log, where: str | None = None) -> list[str]:
    """The paths of the newest version's files."""
    return sorted(log.snapshot().files(where).column("path").to_pylist())


def reading(log: Log, *conditions: str | None) -> LogTransaction:
    """A transaction that read by these conditions; None is the whole table."""
    transaction = log.start_transaction()
    for condition in conditions:
        transaction.read(condition)
    return transaction


def actions_at(log: Log, version: int) -> list[Line]:
    """The actions of a version, as in the log."""
    from txlake.protocol.file_names import commit_path

    data = log._log.store.get(commit_path(version))
    return [json.loads(text) for text in data.splitlines()]


def info_at(log: Log, version: int) -> dict[str, object]:
    """The commitInfo of a version."""
    return actions_at(log, version)[0]["commitInfo"]
