"""Where recorded runs take place: databases, stores, tables of a lake or of nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.judge.histories import Verdict, binary, judged
from tests.judge.lakes import made, places
from tests.judge.programs import Table, carried_out, everything, in_order, orders
from tests.judge.recorder import Recorder, from_file, to_file
from tests.judge.worker import Work, opened
from tests.storage.conftest import s3_client

# A database, a store, whether the tables are named by their places.
PLACES = {
    "catalog": ("sqlite", "local", False),
    "catalog on PostgreSQL": ("postgresql", "local", False),
    "catalog on S3": ("sqlite", "s3", False),
    "path": ("sqlite", "local", True),
    "path on S3": ("sqlite", "s3", True),
}
_LAST = 99


def prepared(request: pytest.FixtureRequest, folder: Path, place: str, **more: Any) -> Work:
    """A lake with the tables of a run; the work of its workers, but for their numbers."""
    binary()
    database, store, by_place = PLACES[place]
    in_bucket = store == "s3"
    work = Work(
        warehouse=f"s3://lake/{folder.name}" if in_bucket else str(folder / "lake"),
        catalog=(
            request.getfixturevalue("postgres_url")
            if database == "postgresql"
            else f"sqlite:///{folder / 'catalog.db'}"
        ),
        options=request.getfixturevalue("s3_options") if in_bucket else {},
        history=str(folder / "history"),
        tables=(),
        process=0,
        **more,
    )
    with opened(work) as client:
        names = ["a"] if by_place else ["a", "b"]
        tables = made(client, work.warehouse, names, by_place=by_place)
    return replace(work, tables=[(table.name, table.sql) for table in tables])


def workers(work: Work, count: int) -> Sequence[Work]:
    """The same work for so many processes."""
    return [replace(work, process=process) for process in range(1, count + 1)]


def verdict_on(work: Work) -> Verdict:
    """On what was recorded, and a reader of everything at the end."""
    tables = [Table(name, sql) for name, sql in work.tables]
    recorder = Recorder(_LAST, to_file(Path(work.history)))
    with opened(replace(work, on_spark=False)) as client:
        last = everything(0, work.levels[0], tables)
        for _ in carried_out(client, recorder, tables, last):
            pass
    if work.options:
        local = Path(work.history).parent / "copy"
        _copied(work, local)
    else:
        local = Path(work.warehouse)
    found = orders(places(str(local), tables))
    return judged(in_order(from_file(Path(work.history)), found))


def _copied(work: Work, to: Path) -> None:
    """The bucket's objects in a folder: the tests' S3 serves one reader at a time."""
    prefix = work.warehouse.removeprefix("s3://lake/") + "/"
    with s3_client(dict(work.options)) as client:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix=prefix):
            for found in page["Contents"]:
                file = to / found["Key"].removeprefix(prefix)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(client.get_object(Bucket="lake", Key=found["Key"])["Body"].read())
