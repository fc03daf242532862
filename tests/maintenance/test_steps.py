"""Work in steps, within a budget of bytes, and what has changed since it was found due."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

import txlake.maintenance.maintainer as maintainer_module
import txlake.maintenance.work as work_module
from tests.maintenance.maintaining import (
    FEW,
    age_log,
    create,
    handle_of,
    maintainer_of,
    newest,
    operations,
)
from tests.session.offline import Offline
from txlake.maintenance.maintainer import Maintainer
from txlake.maintenance.policy import Work
from txlake.maintenance.work import Gain, Worker
from txlake.session.membership.attachment import attach
from txlake.sql.statements import TablePath


@pytest.fixture
def lake(tmp_path: Path) -> Offline:
    return Offline((tmp_path / "lake").as_uri())


def total_bytes(lake: Offline) -> int:
    return sum(add.size for add in newest(lake).files.adds())


def without_statistics(lake: Offline, place: Path) -> None:
    """Attach a table t, of which no file has statistics."""
    table = TablePath(place.as_uri())
    lake.run(f"CREATE TABLE delta.`{table.location}` (id INT)")
    lake.run(f"INSERT INTO delta.`{table.location}` VALUES (1)")
    handle = lake.engine.at(table.location, table)
    bare = [
        msgspec.structs.replace(add, stats=None, data_change=False)
        for add in handle.log.latest().files.adds()
    ]
    lake.stage(handle, bare, "WRITE")
    attach(lake.session, table.location, "t")


def doing(gain: Gain, times_max: int = 3) -> tuple[list[object], Callable[..., Gain]]:
    """What a Worker does instead, and its calls. It fails after a few: a need that stays."""
    calls: list[object] = []

    def on_table(worker: Worker, *given: object) -> Gain:
        calls.append(given)
        assert len(calls) < times_max, "the same work again and again"
        return gain

    return calls, on_table


_HALF = ", ".join(str(number) for number in range(0, 24, 2))


@pytest.mark.parametrize("change", ["", f"DELETE FROM t WHERE id IN ({_HALF})"])
def test_rewriting_is_done_in_steps(
    lake: Offline, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    lake.run("CREATE TABLE t (id INT)")
    for number in range(12):
        lake.run(f"INSERT INTO t VALUES ({2 * number}), ({2 * number + 1})")
    if change:
        lake.run(change)
    else:
        lake.run("ALTER TABLE t SET TBLPROPERTIES ('txlake.maintenance.minSmallFiles' = '3')")
    step = 4 * max(add.size for add in newest(lake).files.adds())
    monkeypatch.setattr(work_module, "DRIVER_STEP_BYTES", step)
    [done] = maintainer_of(lake).run()
    assert (done.need, done.state) == ("purge" if change else "optimize", "done")
    assert operations(lake).count("REORG" if change else "OPTIMIZE") > 1


def test_a_first_step_within_the_budget_is_done(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake, inserts=12)
    step = 4 * max(add.size for add in newest(lake).files.adds())
    monkeypatch.setattr(work_module, "DRIVER_STEP_BYTES", step)
    [done] = maintainer_of(lake, data_bytes=2 * step).run()
    assert done.state == "done"
    assert operations(lake).count("OPTIMIZE") == 1
    assert 1 < len(newest(lake).files) < 12


def test_what_is_done_in_one_step_needs_the_budget_for_all_of_it(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.run("CREATE TABLE t (id INT) CLUSTER BY (id)")
    for number in range(4):
        lake.run(f"INSERT INTO t VALUES ({number})")
    monkeypatch.setattr(work_module, "DRIVER_STEP_BYTES", 1)
    [due] = maintainer_of(lake, data_bytes=total_bytes(lake)).run()
    assert (due.need, due.state) == ("cluster", "due")


def test_work_that_moves_no_data_needs_no_budget_of_bytes(lake: Offline) -> None:
    create(lake, properties="'delta.checkpointInterval' = '100'", inserts=6)
    lake.run("ALTER TABLE t SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    handle = handle_of(lake)
    for path in lake.files(f"{lake.place}/t"):
        if ".checkpoint." in path:
            handle.store.delete([path])
    lake.engine.forget_all()
    done = {entry.need: entry.state for entry in maintainer_of(lake, data_bytes=0).run()}
    assert done["checkpoint"] == "done"


def test_a_need_that_stays_is_met_once_a_round(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake)
    calls, nothing = doing(Gain(is_all=True))
    monkeypatch.setattr(Worker, "on_table", nothing)
    maintainer_of(lake).run()
    assert len(calls) == 1


def test_work_of_one_step_has_one(
    lake: Offline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_statistics(lake, tmp_path / "foreign")
    calls, nothing = doing(Gain(is_all=False))
    monkeypatch.setattr(Worker, "on_table", nothing)
    maintainer_of(lake).run()
    assert len(calls) == 1


def test_a_budget_that_a_step_has_used_up_ends_the_work(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake)
    cost = 2 * total_bytes(lake)
    calls, moving = doing(Gain(data_bytes=cost, is_all=False))
    monkeypatch.setattr(Worker, "on_table", moving)
    maintainer_of(lake, data_bytes=cost).run()
    assert len(calls) == 1


def test_another_need_of_the_table_is_not_this_one(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake, properties=f"{FEW}, 'delta.deletedFileRetentionDuration' = 'interval 0 days'")
    lake.run("OPTIMIZE t")
    age_log(lake, 1)
    for number in range(3):
        lake.run(f"INSERT INTO t VALUES ({number})")
    works: list[object] = []
    real = Worker.on_table

    def on_table(self: Worker, *given: Any) -> Gain:
        works.append(given[1])
        return real(self, *given)

    monkeypatch.setattr(Worker, "on_table", on_table)
    maintainer_of(lake).run()
    assert works == [Work.OPTIMIZE, Work.VACUUM]


def test_a_table_that_is_switched_off_meanwhile_is_left(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake)
    claimed = Maintainer._claimed

    def after_a_change(*given: Any) -> AbstractContextManager[None]:
        lake.run("ALTER TABLE t SET TBLPROPERTIES ('txlake.maintenance.enabled' = 'false')")
        return claimed(*given)

    monkeypatch.setattr(Maintainer, "_claimed", after_a_change)
    [done] = maintainer_of(lake).run()
    assert done.state == "nothing"
    assert "OPTIMIZE" not in operations(lake)


def test_works_have_a_span_and_a_duration(lake: Offline, monkeypatch: pytest.MonkeyPatch) -> None:
    create(lake)
    told: list[tuple[str, dict[str, object]]] = []

    def telling(name: str, **about: object) -> AbstractContextManager[None]:
        told.append((name, about))
        return nullcontext()

    for name in ("span", "timed"):
        monkeypatch.setattr(maintainer_module, name, telling)
    maintainer_of(lake).run()
    assert told == [
        ("maintenance", {"table": "default.t", "work": "optimize"}),
        ("txlake.maintenance.duration", {"work": "optimize"}),
    ]
