"""Branches of path tables, by their own log: no catalog decides anything."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from tests.commit.log_of import add
from tests.session.offline import Offline
from txlake.commands import HANDLERS, table_branches
from txlake.commit.branch_fence import change_registry, close, find_end, reopen
from txlake.commit.table_branches import branches_in
from txlake.errors import ConcurrentAppendException, Conflict, CorruptTable, InvalidRequest
from txlake.lake.log import Log
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import CommitInfo
from txlake.protocol.branching import CLOSED, DOMAIN, FEATURE, Registry, TableBranch, registry_of
from txlake.protocol.file_names import commit_path
from txlake.session.command import AsRows
from txlake.session.engine import Handle
from txlake.session.membership.attachment import attach
from txlake.session.session import Session
from txlake.session.views.describe import Rows
from txlake.sql import parse
from txlake.sql.statements import Select, TablePath, TimeTravel

Row = tuple[object, ...]


class Place(Offline):
    """A path table, and sessions that work on it and its branches."""

    @property
    def t(self) -> str:
        return f"delta.`{self.place}/t`"

    def b(self, name: str = "b") -> str:
        return f"delta.`{self.place}/t@branch:{name}`"

    def do(self, text: str, session: Session | None = None) -> None:
        used = session or self.session
        for statement in parse(text.format(t=self.t, b=self.b(), c=self.b("c"))):
            used.perform(statement)

    def rows(self, text: str, session: Session | None = None) -> list[Row]:
        [statement] = parse(text.format(t=self.t, b=self.b(), c=self.b("c")))
        if isinstance(statement, Select):
            statement = replace(statement, as_values=True)
        used = session or self.session
        rows = used.answer_in(used.current, statement)(AsRows())
        assert isinstance(rows, Rows)
        return sorted(rows.rows)

    @property
    def main(self) -> Handle:
        return self.engine.at_path(TablePath(f"{self.place}/t"))

    def branch(self, name: str) -> TableBranch:
        """The registry's entry of an open branch."""
        return registry_of(self.main.log.latest().domains, table="t").require(name)

    def line(self, name: str) -> Handle:
        """The table on a branch."""
        return self.engine.at_branch(self.main, self.branch(name))

    def version(self, travel: TimeTravel | None, at: str = "") -> int:
        """The version of t, or of a branch of it, that time travel leads to."""
        return self.session.snapshot(TablePath(f"{self.place}/t{at}"), travel).version

    def close(self, name: str) -> None:
        """What a session has done to end a branch when it is killed."""
        log = self.line(name).log
        assert close(log, find_end(log), self.branch(name)) is not None


@pytest.fixture
def place() -> Place:
    made = Place()
    made.do("CREATE TABLE {t} (id BIGINT, v BIGINT)")
    made.do("INSERT INTO {t} VALUES (1, 1), (2, 2), (3, 3)")
    return made


def test_main_and_branches_see_nothing_of_each_other_until_published(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; CREATE BRANCH c FOR TABLE {t}")
    place.do("UPDATE {b} SET v = 10 WHERE id = 1; INSERT INTO {b} VALUES (4, 4)")
    place.do("DELETE FROM {c} WHERE id = 3")
    assert place.rows("SELECT * FROM {t}") == [(1, 1), (2, 2), (3, 3)]
    assert place.rows("SELECT * FROM {b}") == [(1, 10), (2, 2), (3, 3), (4, 4)]
    assert place.rows("SELECT * FROM {c}") == [(1, 1), (2, 2)]
    place.do("PUBLISH BRANCH b FOR TABLE {t}")
    assert place.rows("SELECT * FROM {t}") == [(1, 10), (2, 2), (3, 3), (4, 4)]
    place.do("PUBLISH BRANCH c FOR TABLE {t}")
    assert place.rows("SELECT * FROM {t}") == [(1, 10), (2, 2), (4, 4)]


def test_a_conflict_leaves_the_branch_as_it_was(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; UPDATE {b} SET v = 10 WHERE id = 1")
    place.do("UPDATE {t} SET v = 11 WHERE id = 1")
    [(_, base, newest, answer, detail)] = place.rows("EXPLAIN PUBLISH BRANCH b FOR TABLE {t}")
    assert (base, newest) == (2, 4)
    assert answer == "ConcurrentAppendException"
    assert detail is not None
    for statement in ("PUBLISH", "REBASE"):
        with pytest.raises(Conflict):
            place.do(f"{statement} BRANCH b FOR TABLE {{t}}")
    place.do("INSERT INTO {b} VALUES (4, 4)")
    assert place.rows("SELECT * FROM {b}") == [(1, 10), (2, 2), (3, 3), (4, 4)]
    assert place.rows("SELECT * FROM {t}") == [(1, 11), (2, 2), (3, 3)]
    assert operations(place, "b") == ["WRITE", "UPDATE"]  # it was never closed


def test_what_a_branch_read_is_judged_at_publish(place: Place) -> None:
    place.do("ALTER TABLE {t} SET TBLPROPERTIES ('delta.isolationLevel' = 'Serializable')")
    place.do("CREATE BRANCH b FOR TABLE {t}; DELETE FROM {b} WHERE v < 3")
    place.do("INSERT INTO {t} VALUES (9, 9)")
    [(_, _, _, answer, _)] = place.rows("EXPLAIN PUBLISH BRANCH b FOR TABLE {t}")
    assert answer == "publishes"
    place.do("INSERT INTO {t} VALUES (0, 0)")
    with pytest.raises(ConcurrentAppendException):
        place.do("PUBLISH BRANCH b FOR TABLE {t}")
    place.do("DROP BRANCH b FOR TABLE {t}")
    assert place.rows("SELECT id FROM {t}") == [(0,), (1,), (2,), (3,), (9,)]


def test_a_conflict_after_the_closing_opens_the_branch_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; UPDATE {b} SET v = 10 WHERE id = 1")
    place.do("UPDATE {t} SET v = 11 WHERE id = 1")
    monkeypatch.setattr(table_branches, "_conflict_now", lambda *_: None)
    with pytest.raises(Conflict):
        place.do("PUBLISH BRANCH b FOR TABLE {t}")
    assert operations(place, "b") == ["OPEN BRANCH", "CLOSE BRANCH", "UPDATE"]
    assert place.branch("b").reopened == 1
    place.do("UPDATE {b} SET v = 20 WHERE id = 2")
    place.do("DELETE FROM {t} WHERE id = 3")
    with pytest.raises(Conflict):
        place.do("PUBLISH BRANCH b FOR TABLE {t}")
    assert place.rows("SELECT * FROM {b}") == [(1, 10), (2, 20), (3, 3)]


def test_a_branch_is_published_once_and_its_name_is_free_again(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    place.do("PUBLISH BRANCH B FOR TABLE {t}")
    for statement in (
        "PUBLISH BRANCH b FOR TABLE {t}",
        "REBASE BRANCH b FOR TABLE {t}",
        "DROP BRANCH b FOR TABLE {t}",
        "INSERT INTO {b} VALUES (5, 5)",
        "SELECT * FROM {t} VERSION AS OF 'b'",
    ):
        with pytest.raises(InvalidRequest, match="was published as version 4"):
            place.do(statement)
    place.do("DROP BRANCH IF EXISTS b FOR TABLE {t}; CREATE BRANCH b FOR TABLE {t}")
    with pytest.raises(InvalidRequest, match="has a branch 'b' already"):
        place.do("CREATE BRANCH b FOR TABLE {t}")
    place.do("CREATE BRANCH IF NOT EXISTS b FOR TABLE {t}; INSERT INTO {b} VALUES (5, 5)")
    place.do("PUBLISH BRANCH b FOR TABLE {t}")
    assert place.rows("SELECT id FROM {t}") == [(1,), (2,), (3,), (4,), (5,)]
    assert operations(place)[:3] == ["PUBLISH BRANCH", "CREATE BRANCH", "PUBLISH BRANCH"]


@pytest.mark.parametrize("end", ["PUBLISH", "REBASE", "DROP"])
def test_a_commit_on_a_branch_that_has_ended_is_refused(place: Place, end: str) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    writer = Session(place.engine, HANDLERS)
    place.do("BEGIN; INSERT INTO {b} VALUES (5, 5)", writer)
    place.do(f"{end} BRANCH b FOR TABLE {{t}}")
    with pytest.raises(InvalidRequest, match="is closed"):
        place.do("COMMIT", writer)
    at = "{b}" if end == "REBASE" else "{t}"
    expected = [(1,), (2,), (3,)] if end == "DROP" else [(1,), (2,), (3,), (4,)]
    assert place.rows(f"SELECT id FROM {at}") == expected


@pytest.mark.parametrize("end", ["PUBLISH", "REBASE", "DROP"])
def test_who_ends_a_branch_finishes_what_a_killed_session_began(place: Place, end: str) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    place.close("b")
    with pytest.raises(InvalidRequest, match=r"is closed: .*finish what they find"):
        place.do("INSERT INTO {b} VALUES (5, 5)")
    assert place.rows("SELECT id FROM {b}") == [(1,), (2,), (3,), (4,)]
    place.do("INSERT INTO {t} VALUES (9, 9)")
    place.do(f"{end} BRANCH b FOR TABLE {{t}}")
    if end == "REBASE":
        assert place.rows("SELECT id FROM {b}") == [(1,), (2,), (3,), (4,), (9,)]
        place.do("INSERT INTO {b} VALUES (5, 5); PUBLISH BRANCH b FOR TABLE {t}")
    expected = {
        "PUBLISH": [(1,), (2,), (3,), (4,), (9,)],
        "REBASE": [(1,), (2,), (3,), (4,), (5,), (9,)],
        "DROP": [(1,), (2,), (3,), (9,)],
    }
    assert place.rows("SELECT id FROM {t}") == expected[end]


def test_a_reopening_that_was_interrupted_is_finished(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    place.close("b")
    branch = place.branch("b")
    change_registry(
        place.main.log, "REOPEN BRANCH", branch, lambda registry, _: registry.with_reopened(branch)
    )
    place.do("PUBLISH BRANCH b FOR TABLE {t}")
    assert place.rows("SELECT id FROM {t}") == [(1,), (2,), (3,), (4,)]


def test_a_closing_that_main_has_voided_publishes_nothing(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    place.close("b")
    found = table_branches._find(place.session, TablePath(f"{place.place}/t"), "b")
    net = table_branches._net_change(found)
    reopen(found.main.log, found.line.log, found.end, found.branch)
    place.do("INSERT INTO {b} VALUES (5, 5)")
    with pytest.raises(InvalidRequest, match="opened again meanwhile"):
        table_branches._publish(place.session, found, net)
    assert place.rows("SELECT id FROM {t}") == [(1,), (2,), (3,)]
    assert place.rows("SELECT id FROM {b}") == [(1,), (2,), (3,), (4,), (5,)]


def test_a_branch_that_ended_isnt_opened_again(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    place.close("b")
    found = table_branches._find(place.session, TablePath(f"{place.place}/t"), "b")
    place.do("PUBLISH BRANCH b FOR TABLE {t}")
    reopen(found.main.log, found.line.log, found.end, found.branch)
    assert CLOSED in (found.line.log.latest().protocol.writer_features or ())


def test_rebase_moves_the_branch_to_mains_newest_version(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; UPDATE {b} SET v = 10 WHERE id = 1")
    place.do("DELETE FROM {t} WHERE id = 2")
    place.do("REBASE BRANCH b FOR TABLE {t}")
    assert place.rows("SELECT * FROM {b}") == [(1, 10), (3, 3)]
    assert place.rows("DESCRIBE BRANCH b FOR TABLE {t}") == [
        (f"{place.place}/t", "changed", 4, 5, 0, 1, 0)
    ]
    place.do("UPDATE {t} SET v = 7 WHERE id = 1")
    with pytest.raises(Conflict):
        place.do("PUBLISH BRANCH b FOR TABLE {t}")
    place.do("DROP BRANCH b FOR TABLE {t}")
    assert place.rows("SHOW BRANCHES FOR TABLE {t}") == []


def test_a_branch_without_changes_is_rebased_and_published(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {t} VALUES (4, 4)")
    place.do("REBASE BRANCH b FOR TABLE {t}")
    assert place.rows("DESCRIBE BRANCH b FOR TABLE {t}") == []
    assert len(place.rows("SELECT * FROM {b}")) == 4
    place.do("PUBLISH BRANCH b FOR TABLE {t}")
    assert operations(place)[0] == "PUBLISH BRANCH"


def test_branches_are_listed(place: Place) -> None:
    place.do("CREATE BRANCH nightly FOR TABLE {t}; CREATE BRANCH `a/1` FOR TABLE {t}")
    rows = place.rows("SHOW BRANCHES FOR TABLE {t}")
    assert [row[:3] for row in rows] == [("a/1", 3, 4), ("nightly", 2, 3)]
    assert len(place.rows("SHOW BRANCHES FOR TABLE {t} LIKE 'night*'")) == 1
    assert place.rows("SHOW BRANCHES") == []
    place.do(f"INSERT INTO {place.b('a/1')} VALUES (7, 7)")
    assert place.version(TimeTravel(branch_or_tag="A/1")) == 4


def test_versions_of_a_branch_are_read_by_number_and_name(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    place.do("DELETE FROM {b} WHERE id = 1; INSERT INTO {t} VALUES (9, 9)")
    assert place.version(TimeTravel(branch_or_tag="b")) == 4
    assert place.version(TimeTravel(branch_or_tag="main"), "@branch:b") == 4
    assert place.version(None, "@branch:main") == 4
    first, second = (
        place.session.snapshot(TablePath(f"{place.place}/t{at}"), TimeTravel(version=4))
        for at in ("", "@branch:b")
    )
    assert first.timestamp_ms != second.timestamp_ms
    assert place.version(TimeTravel(version=1), "@branch:b") == 1
    [statement] = parse(f"SELECT * FROM {place.b().replace('b`', 'b@v3`')}")
    assert isinstance(statement, Select)
    [reference] = statement.query.references
    assert reference.table == TablePath(f"{place.place}/t@branch:b")
    assert reference.travel == TimeTravel(version=3)


def test_a_long_branch_has_checkpoints_of_its_own(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}")
    for number in range(10, 35):
        place.do(f"INSERT INTO {{b}} VALUES ({number}, 0)")
    folder = f"_delta_log/_branches/{place.branch('b').id}/_delta_log/"
    names = [item.path for item in place.main.store.list(folder)]
    assert sum(name.endswith(".checkpoint.parquet") for name in names) == 2
    fresh = Place(place.place)
    assert len(fresh.rows("SELECT * FROM {b}")) == 28
    fresh.do("PUBLISH BRANCH b FOR TABLE {t}")
    assert len(fresh.rows("SELECT * FROM {t}")) == 28
    assert place.main.log.latest().version == 4


def test_a_commit_that_says_nothing_about_its_reads_has_read_everything(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; CREATE BRANCH c FOR TABLE {t}")
    for name in "bc":
        log = place.line(name).log
        info = CommitInfo({"operation": "WRITE", "engineInfo": "another"})
        log.write_commit(log.latest().version + 1, [info, add(f"of-{name}.parquet")])
    [(_, _, _, answer, _)] = place.rows("EXPLAIN PUBLISH BRANCH b FOR TABLE {t}")
    assert answer == "publishes"
    place.do("PUBLISH BRANCH b FOR TABLE {t}")
    with pytest.raises(Conflict):
        place.do("PUBLISH BRANCH c FOR TABLE {t}")


def test_what_isnt_done_on_a_branch_is_refused(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; CREATE TABLE named (id BIGINT)")
    refused = {
        "VACUUM {b}": "expected the table on main",
        "ALTER TABLE {b} DROP FEATURE `tableBranching-dev`": "isn't done on a branch",
        "CREATE BRANCH x FOR TABLE {b}": "is a branch",
        "CREATE BRANCH x FOR TABLE named": "leave FOR TABLE out",
        "CREATE BRANCH x FOR TABLE nowhere": "leave FOR TABLE out",
        "GENERATE symlink_format_manifest FOR TABLE {b}": "main's rows",
        "CREATE TABLE x (id INT) LOCATION 'memory://x@branch:b'": "expected the place of a table",
        "SELECT * FROM {c}": "has no branch 'c'",
        "BEGIN; PUBLISH BRANCH b FOR TABLE {t}": "a transaction is open",
        "CREATE BRANCH x FOR TABLE delta.`memory://nowhere/t`": "is not a Delta table",
        "CREATE BRANCH x FOR TABLE {t} RETAIN 7 DAYS": "kept until it is published or dropped",
    }
    for statement, message in refused.items():
        with pytest.raises(InvalidRequest, match=message):
            place.do(statement, Session(place.engine, HANDLERS))
    with pytest.raises(InvalidRequest, match="a Log is a table's own"):
        Log(f"{place.place}/t@branch:b")
    named = place.engine.catalog.find("default", "named")
    assert named is not None
    with pytest.raises(InvalidRequest, match="used by USE BRANCH"):
        place.do(f"SELECT * FROM delta.`{named.location}@branch:b`")
    with pytest.raises(InvalidRequest, match=r"has branches of its own.*: b;"):
        attach(place.session, f"{place.place}/t", "mine")
    place.do("DROP BRANCH b FOR TABLE {t}")
    attach(place.session, f"{place.place}/t", "mine")
    with pytest.raises(InvalidRequest, match="leave FOR TABLE out"):
        place.do("CREATE BRANCH b FOR TABLE {t}")


def test_the_feature_is_dropped_once_no_branch_is_left(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}")
    drop = "ALTER TABLE {t} DROP FEATURE `tableBranching-dev`"
    with pytest.raises(InvalidRequest, match="while the table has branches: b"):
        place.do(drop)
    with pytest.raises(InvalidRequest, match="tableBranching-dev needs it"):
        place.do("ALTER TABLE {t} DROP FEATURE domainMetadata")
    place.do("DROP BRANCH b FOR TABLE {t}")
    place.do(drop)
    latest = place.main.log.latest()
    assert FEATURE not in latest.features
    assert DOMAIN not in latest.domains
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    assert len(place.rows("SELECT * FROM {b}")) == 4


def test_a_clone_has_no_branches(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    place.close("b")
    for name, source in {"of_main": "{t}", "of_branch": "{b}"}.items():
        clone = f"{place.place}/{name}"
        place.do(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE {source}")
        latest = place.engine.at_path(TablePath(clone)).log.latest()
        assert latest.domains == {}
        assert not latest.features & {FEATURE, CLOSED, "domainMetadata"}
        place.do(f"INSERT INTO delta.`{clone}` VALUES (9, 9)")


def test_what_replaces_main_leaves_its_branches(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    place.do("RESTORE TABLE {t} TO VERSION AS OF 0; CREATE OR REPLACE TABLE {t} (id BIGINT)")
    assert len(place.rows("SELECT * FROM {b}")) == 4
    with pytest.raises(Conflict):
        place.do("PUBLISH BRANCH b FOR TABLE {t}")
    place.do("RESTORE TABLE {b} TO VERSION AS OF 2; DROP BRANCH b FOR TABLE {t}")


def test_a_damaged_branch_can_be_dropped(place: Place) -> None:
    place.do("CREATE BRANCH b FOR TABLE {t}; INSERT INTO {b} VALUES (4, 4)")
    place.do("INSERT INTO {b} VALUES (5, 5)")
    store = place.line("b").store
    store.delete([commit_path(3)])
    fresh = Place(place.place)
    with pytest.raises(CorruptTable):
        fresh.do("PUBLISH BRANCH b FOR TABLE {t}")
    fresh.do("DROP BRANCH b FOR TABLE {t}")
    assert fresh.rows("SHOW BRANCHES FOR TABLE {t}") == []


def test_identity_values_of_main_and_a_branch_dont_meet(place: Place) -> None:
    place.do(
        f"CREATE TABLE delta.`{place.place}/i` (id BIGINT GENERATED ALWAYS AS IDENTITY, v BIGINT)"
    )
    place.do(f"CREATE BRANCH b FOR TABLE delta.`{place.place}/i`")
    for at in ("/i@branch:b", "/i"):
        place.do(f"INSERT INTO delta.`{place.place}{at}` (v) VALUES (1)")
    with pytest.raises(Conflict):
        place.do(f"PUBLISH BRANCH b FOR TABLE delta.`{place.place}/i`")


def test_main_and_branches_hand_out_other_row_ids(place: Place) -> None:
    place.do(
        f"CREATE TABLE delta.`{place.place}/r` (id BIGINT) TBLPROPERTIES "
        "('delta.enableRowTracking' = 'true')"
    )
    at = {name: f"delta.`{place.place}/r{end}`" for name, end in _LINES.items()}
    place.do(f"CREATE BRANCH b FOR TABLE {at['t']}; CREATE BRANCH c FOR TABLE {at['t']}")
    for _ in range(2):
        for one in at.values():
            place.do(f"INSERT INTO {one} VALUES (1)")
    place.do(f"PUBLISH BRANCH c FOR TABLE {at['t']}; INSERT INTO {at['t']} VALUES (1)")
    place.do(f"REBASE BRANCH b FOR TABLE {at['t']}; INSERT INTO {at['b']} VALUES (1)")
    place.do(f"INSERT INTO {at['t']} VALUES (1); PUBLISH BRANCH b FOR TABLE {at['t']}")
    latest = place.engine.at_path(TablePath(f"{place.place}/r")).log.latest()
    ids = [file.base_row_id for file in latest.files.adds()]
    assert len(ids) == len(set(ids)) == 9
    assert {0 if one is None else one >> 36 for one in ids} == {0, 1, 2, 3}


def test_a_branch_without_a_block_of_row_ids_hands_out_none(place: Place) -> None:
    place.do("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    place.do("CREATE BRANCH b FOR TABLE {t}")
    other = replace(place.branch("b"), id="of-another-engine", name="c", row_id_block=None)
    change_registry(
        place.main.log, "CREATE BRANCH", other, lambda registry, _: registry.with_created(other)
    )
    with pytest.raises(InvalidRequest, match="keeps no row ids apart"):
        place.do("INSERT INTO {c} VALUES (4, 4)")
    place.do("DELETE FROM {c} WHERE id = 1; PUBLISH BRANCH c FOR TABLE {t}")
    assert place.rows("SELECT id FROM {t}") == [(2,), (3,)]


_LINES = {"t": "", "b": "@branch:b", "c": "@branch:c"}


def operations(place: Place, branch: str | None = None) -> list[str]:
    """The operations in the history of main, or of a branch since it began, the newest first."""
    handle = place.main if branch is None else place.line(branch)
    base = -1 if handle.branch is None else handle.branch.base
    rows = [row for row in handle.log.history() if cast(int, row["version"]) > base]
    return [str(row["operation"]) for row in rows]


def test_a_branch_that_begins_while_the_table_is_attached_stops_that(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.do("CREATE BRANCH c FOR TABLE {t}; DROP BRANCH c FOR TABLE {t}")  # the feature stays

    def begun_after(view: Snapshot) -> Registry:
        found = branches_in(view)
        monkeypatch.undo()
        place.do("CREATE BRANCH b FOR TABLE {t}")
        return found

    monkeypatch.setattr("txlake.session.membership.attachment.branches_in", begun_after)
    with pytest.raises(Conflict):
        attach(place.session, f"{place.place}/t", "mine")
    assert place.catalog.find("default", "mine") is None
    place.do("INSERT INTO {b} VALUES (4, 4); PUBLISH BRANCH b FOR TABLE {t}")
    assert len(place.rows("SELECT * FROM {t}")) == 4
