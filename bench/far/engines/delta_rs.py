"""delta-rs on path tables of the same rows."""

from __future__ import annotations

import itertools

from bench.far.engines import tables
from bench.far.measuring import Meter


def measure(meter: Meter) -> None:
    """Measure the statements that delta-rs has."""
    from deltalake import DeltaTable, write_deltalake

    task = meter.task
    options = tables.delta_rs_options(task)
    numbers = itertools.count(10**6)

    def append(url: str) -> None:
        write_deltalake(url, tables.rows(next(numbers), 1), mode="append", storage_options=options)

    with meter.undelayed():
        write_deltalake(task.url, tables.rows(0, task.sizes["rows"]), storage_options=options)
        table = DeltaTable(task.url, storage_options=options)
    meter.run("insert", lambda n: append(task.url))
    meter.run(
        "update", lambda n: table.update(new_values={"value": f"{n}"}, predicate=f"id = {100 + n}")
    )
    meter.run("delete", lambda n: table.delete(f"id = {200 + n}"))

    def select(number: int) -> None:
        table.to_pyarrow_dataset().to_table(filter=_id_is(number))

    meter.run("select", select, before=table.update_incremental)

    def select_after(number: int) -> None:
        table.update_incremental()
        select(100 + number)

    meter.run("select_after", select_after, before=lambda: append(task.url))
    _merge(meter, options)

    history = f"{task.url}-history"
    meter.run(
        "open",
        lambda n: DeltaTable(history, storage_options=options).version(),
        prepare=lambda: tables.write_commits(task, history),
    )


def _id_is(number: int) -> object:
    import pyarrow.compute as pc

    return pc.field("id") == 300 + number


def _merge(meter: Meter, options: dict[str, str]) -> None:
    from deltalake import DeltaTable

    task = meter.task
    url = f"{task.url}-merged"

    def merge(number: int) -> None:
        (
            DeltaTable(url, storage_options=options)
            .merge(tables.changes(task, number), "t.id = c.id", source_alias="c", target_alias="t")
            .when_matched_update({"v": "t.v + c.v"})
            .when_not_matched_insert({"id": "c.id", "k": "0", "v": "c.v", "s": "''"})
            .execute()
        )

    meter.run(
        "merge",
        merge,
        prepare=lambda: tables.upload(tables.merge_rows(task), url, task.storage_options),
    )
