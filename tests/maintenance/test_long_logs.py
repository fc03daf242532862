"""A survey of a long log lists what expires of it, and nothing of the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.maintenance.maintaining import create, handle_of, newest
from tests.session.offline import Offline
from txlake.commit.expired_files import note_vacuum
from txlake.commit.log_cleanup import clean_log, midnight
from txlake.maintenance.needs import TableFacts
from txlake.maintenance.survey import Target, table_facts
from txlake.ports import StoredObject
from txlake.protocol.file_names import CommitFile, commit_path, parse_name
from txlake.protocol.last_vacuum import LastVacuum
from txlake.storage.local import LocalStore

DAY_MS = 86_400_000
AGES = {range(41): 40, range(41, 81): 10, range(81, 120): 1}
"""Days since the versions were committed."""


@pytest.fixture
def lake(tmp_path: Path) -> Offline:
    """A lake with a table whose log was cleaned up."""
    made = Offline((tmp_path / "lake").as_uri())
    create(made, properties="'a' = 'b'", inserts=119)
    for versions, days in AGES.items():
        for path in log_folder(made).iterdir():
            if path.name[:20].isdigit() and int(path.name[:20]) in versions:
                time_s = path.stat().st_mtime - days * 86_400
                os.utime(path, (time_s, time_s))
    made.engine.forget_all()
    clean_log(handle_of(made).log, retention_ms=30 * DAY_MS)
    return made


def log_folder(lake: Offline) -> Path:
    return Path(unquote(urlsplit(handle_of(lake).store.url).path)) / "_delta_log"


def time_ms(lake: Offline, version: int) -> int:
    """When a version was committed."""
    found = handle_of(lake).store.head(commit_path(version))
    assert found is not None
    return found.modified_ms


def facts_and_versions(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> tuple[TableFacts, list[int]]:
    """What a survey finds, and the versions whose commits it listed."""
    listed: list[int] = []
    real = LocalStore.list

    def counted(store: LocalStore, *given: str | None) -> Iterator[StoredObject]:
        for item in real(store, *given):  # type: ignore[arg-type]
            file = parse_name(item.path)
            if isinstance(file, CommitFile):
                listed.append(file.version)
            yield item

    table = newest(lake)
    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "list", counted)
        return table_facts(lake.engine, Target(handle_of(lake)), table), listed


def test_the_newest_versions_are_not_listed(lake: Offline, monkeypatch: pytest.MonkeyPatch) -> None:
    note_vacuum(handle_of(lake).log, LastVacuum(70))
    facts, listed = facts_and_versions(lake, monkeypatch)
    assert max(listed) == 81
    assert len(listed) < 40
    assert facts.checkpoint_version == 110
    assert facts.expired_log_files == 0
    assert facts.next_file_expiry_ms == time_ms(lake, 81) + 7 * DAY_MS + 1
    assert facts.next_log_expiry_ms == midnight(time_ms(lake, 50) + DAY_MS - 1) + 30 * DAY_MS


def test_a_checkpoint_is_not_taken_for_the_oldest_commit(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    note_vacuum(handle_of(lake).log, LastVacuum(89))
    [checkpoint] = log_folder(lake).glob(f"{90:020}.checkpoint*")
    os.utime(checkpoint, (1_000_000, 1_000_000))
    facts, _ = facts_and_versions(lake, monkeypatch)
    assert facts.next_file_expiry_ms == time_ms(lake, 90) + 7 * DAY_MS + 1


def test_a_log_that_was_vacuumed_up_to_its_end_has_nothing_that_expires(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    note_vacuum(handle_of(lake).log, LastVacuum(119))
    facts, listed = facts_and_versions(lake, monkeypatch)
    assert facts.next_file_expiry_ms is None
    assert facts.expired is not None
    assert facts.expired.files == 0
    assert max(listed) == 50


def test_a_commit_that_is_gone_leaves_it_to_a_listing_of_the_table(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log was cleaned up before any VACUUM."""
    facts, listed = facts_and_versions(lake, monkeypatch)
    assert facts.expired is None
    assert facts.next_file_expiry_ms == time_ms(lake, min(listed)) + 7 * DAY_MS + 1


def test_a_checkpoint_without_its_commit_counts_from_when_it_was_written(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    [checkpoint] = log_folder(lake).glob(f"{50:020}.checkpoint*")
    (log_folder(lake) / f"{50:020}.json").unlink()
    facts, _ = facts_and_versions(lake, monkeypatch)
    written_ms = int(checkpoint.stat().st_mtime * 1000)
    assert facts.next_log_expiry_ms == midnight(written_ms + DAY_MS - 1) + 30 * DAY_MS


def test_a_log_without_a_later_checkpoint_is_kept(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in log_folder(lake).glob("*.checkpoint*"):
        if int(path.name[:20]) > 40:
            path.unlink()
    (log_folder(lake) / "_last_checkpoint").unlink()
    facts, _ = facts_and_versions(lake, monkeypatch)
    assert facts.next_log_expiry_ms is None
    assert facts.checkpoint_version == 40
