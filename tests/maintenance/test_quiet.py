"""Tables that need nothing for a while: rounds read nothing of them, and nothing is missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.maintenance.maintaining import FEW, create, handle_of, maintainer_of, newest
from tests.session.offline import Offline
from txlake.maintenance import survey as survey_module
from txlake.session.engine import Engine

DAY_MS = 86_400_000


@pytest.fixture
def lake(tmp_path: Path) -> Offline:
    return Offline((tmp_path / "lake").as_uri())


@pytest.fixture
def surveyed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables whose logs are read for their needs, by name."""
    names: list[str] = []
    real = survey_module.table_facts

    def noted(
        engine: Engine, target: survey_module.Target, *given: object, **more: object
    ) -> object:
        names.append(target.name.removeprefix("default."))
        return real(engine, target, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(survey_module, "table_facts", noted)
    return names


def rounds(lake: Offline, surveyed: list[str]) -> list[str]:
    """Run a round that does nothing, and return the tables that it surveyed."""
    surveyed.clear()
    assert maintainer_of(lake).run() == []
    return sorted(surveyed)


def pass_time(lake: Offline, monkeypatch: pytest.MonkeyPatch, duration_ms: int) -> None:
    """Set the clock of this process later."""
    real = type(lake.engine.system).now_ms
    monkeypatch.setattr(
        type(lake.engine.system), "now_ms", lambda system: real(system) + duration_ms
    )


def test_a_table_is_surveyed_again_when_it_has_changed(lake: Offline, surveyed: list[str]) -> None:
    create(lake, "a", inserts=1)
    create(lake, "b", inserts=1)
    assert rounds(lake, surveyed) == ["a", "b"]
    assert rounds(lake, surveyed) == []
    lake.run("INSERT INTO b VALUES (7)")
    assert rounds(lake, surveyed) == ["b"]
    assert rounds(lake, surveyed) == []
    lake.run("INSERT INTO b VALUES (8)")
    [done] = maintainer_of(lake).run()  # it has three small files now
    assert (done.table_name, done.state) == ("default.b", "done")
    assert rounds(lake, surveyed) == ["b"]
    assert rounds(lake, surveyed) == []


def test_what_is_due_and_left_is_surveyed_each_time(lake: Offline, surveyed: list[str]) -> None:
    create(lake)
    for _ in range(2):
        surveyed.clear()
        [left] = maintainer_of(lake, time_ms=0).run()
        assert left.state == "due"
        assert surveyed == ["t"]


def test_a_dry_run_looks_at_every_table(lake: Offline, surveyed: list[str]) -> None:
    create(lake, inserts=1)
    assert rounds(lake, surveyed) == ["t"]
    assert maintainer_of(lake).plan() == []
    assert surveyed == ["t", "t"]


def test_another_policy_of_the_database_is_another_survey(
    lake: Offline, surveyed: list[str]
) -> None:
    create(lake, properties="'a' = 'b'", inserts=3)
    assert rounds(lake, surveyed) == ["t"]
    assert rounds(lake, surveyed) == []
    lake.run("ALTER DATABASE default SET DBPROPERTIES ('txlake.maintenance.minSmallFiles' = '3')")
    [done] = maintainer_of(lake).run()
    assert (done.need, done.state) == ("optimize", "done")


def test_needs_that_come_with_time_are_found_at_their_time(
    lake: Offline, surveyed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    retention = "'delta.deletedFileRetentionDuration' = 'interval 3 hours'"
    create(lake, properties=f"{FEW}, {retention}", inserts=2)
    lake.run("DELETE FROM t")
    assert rounds(lake, surveyed) == ["t"]
    pass_time(lake, monkeypatch, 2 * 3_600_000)
    assert rounds(lake, surveyed) == []
    pass_time(lake, monkeypatch, 3_700_000)
    [done] = maintainer_of(lake).run()
    assert (done.need, done.state, done.files) == ("vacuum", "done", 2)
    rounds(lake, surveyed)
    pass_time(lake, monkeypatch, 7 * DAY_MS)
    assert [entry.need for entry in maintainer_of(lake).run()] == ["full vacuum"]


def test_a_table_that_goes_is_forgotten(lake: Offline, surveyed: list[str]) -> None:
    create(lake, "a", inserts=1)
    create(lake, "b", inserts=1)
    rounds(lake, surveyed)
    book = lake.catalog.maintenance
    entry = handle_of(lake, "a").entry
    assert entry is not None
    assert book.quiet_tables()[entry.id].version == newest(lake, "a").version
    assert len(book.quiet_tables()) == 2
    lake.run("DROP TABLE a")
    rounds(lake, surveyed)
    assert entry.id not in book.quiet_tables()
    assert len(book.quiet_tables()) == 1
