"""Transactions of a lake whose catalog is in a store register nothing before they commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlake
from tests.catalog.view_changes import create_view
from tests.session.offline import Offline
from txlake.catalog import Catalog
from txlake.catalog.admission import Admission, Admissions
from txlake.catalog.database import CommitUnsettled
from txlake.catalog.replicated.database import ReplicatedDatabase
from txlake.catalog.replicated.log import CatalogLog
from txlake.catalog.transactions import TransactionEntry
from txlake.catalog.unregistered import AdmissionOutdated, UnregisteredWriters
from txlake.commands import HANDLERS
from txlake.conflict.locking import LockMode, LockRequest, Resource, ResourceType
from txlake.errors import Conflict, CorruptTable, InvalidRequest, LockTimeout, Unavailable
from txlake.session.command import AsRows
from txlake.session.deferral import Deferral, deferral_of
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.session.transaction import Transaction
from txlake.session.views.describe import Rows
from txlake.sql import parse
from txlake.sql.statements import Select, TableName
from txlake.system import System


class Lake(Offline):
    """One process's lake on a catalog in a folder."""

    def __init__(self, folder: Path) -> None:
        catalog = Catalog((folder / "_txlake/catalog").as_uri(), System())
        super().__init__(folder.as_uri(), catalog)
        self.folder = folder

    def rows(self, text: str, transaction: Transaction | None = None) -> list[tuple[object, ...]]:
        """The sorted rows of a query."""
        [statement] = parse(text)
        assert isinstance(statement, Select)
        answer = self.session.carry_out(transaction, replace(statement, as_values=True))
        rows = answer(AsRows())
        assert isinstance(rows, Rows)
        return sorted(rows.rows)

    def ids(self, table: str) -> list[object]:
        return [row[0] for row in self.rows(f"SELECT id FROM {table}")]

    def begin(self, *texts: str) -> Transaction:
        """A transaction that has carried out these statements."""
        transaction = self.session.begin()
        for text in texts:
            self.run_in(transaction, text)
        return transaction

    @property
    def entries(self) -> int:
        """How many entries the catalog's log has."""
        return len(list((self.folder / "_txlake/catalog/log").iterdir()))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    # What comes after a while comes after ten minutes.
    monkeypatch.setattr("txlake.catalog.publishing.DEFERRED_IN_STORE_MS", 600_000)
    monkeypatch.setattr("txlake.catalog.unregistered.REGISTERED_MS", 600_000)
    made = Lake(tmp_path)
    made.run("CREATE TABLE t (id INT); CREATE TABLE u (id INT)")
    made.run("INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)")
    made.catalog.ledger.newest_commits()  # writes the deferred notes
    yield made
    made.engine.close()


@pytest.fixture
def other(lake: Lake) -> Iterator[Lake]:
    """The lake as another object of the process, or with `apart` another host, has it."""
    made = Lake(lake.folder)
    yield made
    made.engine.close()


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the lake's objects of this process not know each other, as on two hosts."""
    monkeypatch.setattr("txlake.catalog.unregistered._of_process", _Apart())


class _Apart(dict[str, Any]):
    def setdefault(self, key: str, default: Any = None) -> Any:
        return default

    def __missing__(self, key: str) -> set[Any]:
        return set()

    def get(self, key: str, default: Any = None) -> Any:
        return default


def after_admission(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]
) -> list[str]:
    """Run `do` once, after the lake's first deferred admission; return the transactions of all."""
    admitted: list[str] = []
    admit = Admissions.admit_unregistered

    def admit_and_do(self: Admissions, transaction: Any, *args: Any, **given: Any) -> Admission:
        admission = admit(self, transaction, *args, **given)
        if self is lake.catalog.admissions:
            admitted.append(transaction.id)
            if len(admitted) == 1:
                do()
        return admission

    monkeypatch.setattr(Admissions, "admit_unregistered", admit_and_do)
    return admitted


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO t VALUES (2)", "UPDATE t SET id = 2 WHERE id = 1", "DELETE FROM t WHERE id = 1"],
)
def test_a_statement_is_one_entry(lake: Lake, statement: str) -> None:
    before = lake.entries
    lake.run(statement)
    assert lake.entries == before + 1


def test_a_transaction_over_two_tables_is_one_entry(lake: Lake) -> None:
    before = lake.entries
    tx = lake.begin("INSERT INTO t VALUES (2)", "INSERT INTO u VALUES (2)")
    lake.run_in(tx, "INSERT INTO t VALUES (3)")
    assert lake.ids("t") == [1]
    assert lake.rows("SELECT id FROM t", tx) == [(1,), (2,), (3,)]
    tx.commit()
    assert lake.entries == before + 1
    assert (lake.ids("t"), lake.ids("u")) == ([1, 2, 3], [1, 2])


def test_what_only_reads_or_is_rolled_back_is_none(lake: Lake) -> None:
    before = lake.entries
    tx = lake.begin()
    assert lake.rows("SELECT id FROM t", tx) == [(1,)]
    tx.commit()
    lake.begin("INSERT INTO t VALUES (2)").rollback()
    assert lake.entries == before
    assert lake.ids("t") == [1]


def test_a_transaction_keeps_its_instant(lake: Lake, other: Lake) -> None:
    tx = lake.begin()
    assert lake.rows("SELECT id FROM t", tx) == [(1,)]
    other.run("INSERT INTO t VALUES (2); INSERT INTO u VALUES (2)")
    lake.catalog.ledger.sequence()  # this process knows of it
    assert lake.rows("SELECT id FROM t", tx) == [(1,)]
    assert lake.rows("SELECT id FROM u", tx) == [(1,)]
    tx.commit()
    assert lake.ids("u") == [1, 2]


def test_a_transaction_reads_what_was_committed_before_it(lake: Lake, other: Lake) -> None:
    other.run("INSERT INTO t VALUES (2)")
    tx = lake.begin("DELETE FROM t WHERE id >= 1")
    tx.commit()
    assert other.ids("t") == []


def test_others_of_the_process_see_its_locks(lake: Lake, other: Lake) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    assert "IX" in {lock.mode.value for lock in other.catalog.locks.entries()}
    other.session.lock_timeout_ms = 0
    with pytest.raises(LockTimeout):
        other.run("ALTER TABLE t ADD COLUMN n INT")
    tx.commit()
    assert other.catalog.locks.entries() == []
    other.run("ALTER TABLE t ADD COLUMN n INT")
    assert lake.ids("t") == [1, 2]


@pytest.mark.parametrize("apply", ["commit", "rollback"])
def test_it_is_registered_after_a_while(lake: Lake, other: Lake, apart: None, apply: str) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    assert other.catalog.transactions.entries() == []
    lake.catalog.unregistered.register(older_than_ms=600_000)
    assert other.catalog.transactions.entries() == []
    lake.catalog.unregistered.register()
    [entry] = other.catalog.transactions.entries()
    assert (entry.id, entry.sequence, entry.explicit) == (tx.id, tx.sequence, True)
    other.session.lock_timeout_ms = 0
    with pytest.raises(LockTimeout):
        other.run("DROP TABLE t")
    lake.run_in(tx, "INSERT INTO t VALUES (3)")
    lake.run_in(tx, "INSERT INTO u VALUES (2)")
    getattr(tx, apply)()
    assert other.catalog.transactions.entries() == []
    assert other.catalog.locks.entries() == []
    added = [2, 3] if apply == "commit" else []
    assert other.ids("t") == [1, *added]
    other.run("DROP TABLE t")


def test_a_statement_that_takes_long_is_registered(
    lake: Lake, other: Lake, apart: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Transaction.stage
    seen: list[TransactionEntry] = []

    def register_and_stage(self: Transaction, handle: Any, change: Any) -> None:
        if not seen:
            lake.catalog.unregistered.register()
            seen.extend(other.catalog.transactions.entries())
        stage(self, handle, change)

    monkeypatch.setattr(Transaction, "stage", register_and_stage)
    lake.run("INSERT INTO t VALUES (2)")
    assert [entry.explicit for entry in seen] == [False]
    assert other.ids("t") == [1, 2]
    assert other.catalog.transactions.entries() == []
    seen.clear()
    monkeypatch.setattr(Transaction, "commit", _refuse)
    with pytest.raises(InvalidRequest, match="not now"):
        lake.run("UPDATE t SET id = 3 WHERE id = 2")
    assert len(seen) == 1
    assert other.catalog.transactions.entries() == []


def _refuse(_: Transaction) -> None:
    raise InvalidRequest("not now")


def test_one_that_was_ratified_is_not_registered(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget = UnregisteredWriters.forget_ratified

    def register_and_forget(self: UnregisteredWriters, ids: Sequence[str]) -> None:
        self.register()
        forget(self, ids)

    monkeypatch.setattr(UnregisteredWriters, "forget_ratified", register_and_forget)
    lake.begin("INSERT INTO t VALUES (2)").commit()
    lake.run("INSERT INTO t VALUES (3)")
    assert lake.catalog.transactions.entries() == []
    assert lake.catalog.locks.entries() == []


def test_it_is_killed(lake: Lake, other: Lake) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    assert other.catalog.transactions.kill(tx.id)
    with pytest.raises(Unavailable, match="killed"):
        tx.commit()
    assert lake.ids("t") == [1]


def test_one_that_was_dropped_is_not_registered(lake: Lake, other: Lake) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    lake.catalog.transactions.withdraw(tx.id)  # as where its object was garbage-collected
    assert other.catalog.transactions.entries() == []
    assert not lake.catalog.unregistered.has(tx.id)


def test_a_later_lock_registers_it(lake: Lake, other: Lake, apart: None) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    lake.run_in(tx, "ALTER TABLE u ADD COLUMN n INT")
    assert [entry.id for entry in other.catalog.transactions.entries()] == [tx.id]
    other.session.lock_timeout_ms = 0
    for table in ("t", "u"):
        with pytest.raises(LockTimeout):
            other.run(f"DROP TABLE {table}")
    tx.commit()
    assert other.ids("t") == [1, 2]


@pytest.mark.parametrize("by", ["commit", "lock"])
def test_a_name_that_has_changed_stops_a_transaction(
    lake: Lake, other: Lake, apart: None, by: str
) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    other.run("ALTER TABLE t RENAME TO old; CREATE TABLE t (id INT)")
    with pytest.raises(AdmissionOutdated, match="changed"):
        tx.commit() if by == "commit" else lake.run_in(tx, "ALTER TABLE u ADD COLUMN n INT")
    tx.rollback()
    assert (lake.ids("t"), lake.ids("old")) == ([], [1])
    assert other.catalog.transactions.entries() == []


@pytest.mark.parametrize("change", ["ALTER TABLE t ADD COLUMN n INT", "ALTER TABLE t RENAME TO o"])
def test_a_statement_runs_again(
    lake: Lake, other: Lake, apart: None, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    def do() -> None:
        other.run(change)
        if "RENAME" in change:
            other.run("CREATE TABLE t (id INT); INSERT INTO t VALUES (1)")

    admitted = after_admission(lake, monkeypatch, do)
    lake.run("UPDATE t SET id = 5 WHERE id = 1")
    assert len(admitted) == 1
    assert lake.ids("t") == [5]
    assert lake.catalog.journal.conflicts() == []


def test_an_append_begins_with_what_is_known(lake: Lake, other: Lake, apart: None) -> None:
    other.run("ALTER TABLE t ADD COLUMN n INT")
    lake.run("INSERT INTO t VALUES (2, 2)")  # a column that this object didn't know of
    with pytest.raises(InvalidRequest, match="3"):
        lake.run("INSERT INTO t VALUES (3, 3, 3)")
    other.run("DROP TABLE u")
    with pytest.raises(InvalidRequest, match="u"):
        lake.run("INSERT INTO u VALUES (2)")
    assert other.ids("t") == [1, 2]


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("UPDATE t SET id = 3 WHERE id = 2", [1, 3]),
        ("DELETE FROM t WHERE id = 2", [1]),
    ],
)
def test_what_reads_rows_begins_with_what_was_committed(
    lake: Lake, other: Lake, apart: None, statement: str, rows: list[int]
) -> None:
    other.run("INSERT INTO t VALUES (2)")
    lake.run(statement)
    assert lake.ids("t") == rows


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t SELECT id + 1 FROM t",
        "INSERT OVERWRITE t VALUES (1)",
        "INSERT INTO t REPLACE WHERE id = 1 VALUES (1)",
        "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE t",
    ],
)
def test_only_an_append_begins_unseen(text: str) -> None:
    [statement] = parse(text)
    assert deferral_of(statement) is Deferral.UNTIL_COMMIT


def test_a_lock_of_another_host_is_waited_for(lake: Lake, other: Lake, apart: None) -> None:
    held = other.begin("ALTER TABLE t ADD COLUMN n INT")
    lake.session.lock_timeout_ms = 0
    with pytest.raises(LockTimeout):
        lake.run("INSERT INTO t VALUES (2)")
    tx = lake.begin()
    with pytest.raises(LockTimeout):
        lake.run_in(tx, "DELETE FROM t WHERE id = 1")
    tx.rollback()
    held.rollback()
    lake.run("INSERT INTO t VALUES (2)")
    assert lake.ids("t") == [1, 2]


def test_a_lock_that_came_after_stops_a_transaction(lake: Lake, other: Lake, apart: None) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    held = other.begin("ALTER TABLE t ADD COLUMN n INT")
    with pytest.raises(AdmissionOutdated, match="locked"):
        tx.commit()
    held.commit()
    assert lake.ids("t") == [1]


def test_a_vacuum_stops_what_it_does_not_know(lake: Lake, other: Lake, apart: None) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    other.catalog.transactions.others_open("")
    with pytest.raises(AdmissionOutdated, match="VACUUM"):
        tx.commit()
    assert lake.ids("t") == [1]
    lake.run("INSERT INTO t VALUES (2)")
    assert lake.ids("t") == [1, 2]


def test_a_vacuum_knows_those_of_its_process(lake: Lake, other: Lake) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    assert other.catalog.transactions.others_open("").ids == {tx.id}
    tx.commit()
    assert lake.ids("t") == [1, 2]


def test_a_vacuum_makes_a_statement_run_again(
    lake: Lake, other: Lake, apart: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, staged = Transaction.stage, []

    def stage_and_vacuum(self: Transaction, handle: Any, change: Any) -> None:
        stage(self, handle, change)
        staged.append(self.id)
        if len(staged) == 1:
            other.catalog.transactions.others_open("")

    monkeypatch.setattr(Transaction, "stage", stage_and_vacuum)
    lake.run("INSERT INTO t VALUES (2)")
    assert len(set(staged)) == 2
    assert other.ids("t") == [1, 2]


def test_a_missing_file_after_a_vacuum_is_not_damage(lake: Lake, other: Lake, apart: None) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    tx.registration.require_open()
    other.catalog.transactions.others_open("")
    with pytest.raises(AdmissionOutdated, match="VACUUM"):
        tx.registration.require_open()
    tx.rollback()


def test_conflicts_of_deferred_statements_are_in_the_journal(
    lake: Lake, other: Lake, apart: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_admission(lake, monkeypatch, lambda: other.run("UPDATE t SET id = 7 WHERE id = 1"))
    with pytest.raises(Conflict):
        lake.run("UPDATE t SET id = 8 WHERE id = 1")
    assert lake.ids("t") == [7]
    assert len(lake.catalog.journal.conflicts()) == 1


def test_a_turn_is_reserved_for_one_that_loses(lake: Lake, other: Lake, apart: None) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    [entry] = lake.catalog.tables("default")[:1]
    assert lake.catalog.ledger.reserve(tx.id, [entry.id])
    rival = other.begin("INSERT INTO t VALUES (3)")
    other.catalog.unregistered.register()
    assert not other.catalog.ledger.reserve(rival.id, [entry.id])
    rival.rollback()
    tx.commit()
    assert other.ids("t") == [1, 2]


def test_many_threads_commit_what_they_told(lake: Lake) -> None:
    """Registration in the background meets commits: no row stays, and none is lost."""
    stop = threading.Event()

    def register() -> None:
        while not stop.is_set():
            lake.catalog.unregistered.register()

    def write(first: int) -> None:
        session = Session(lake.engine, HANDLERS)
        for number in range(first, first + 6):
            transaction = session.begin() if number % 2 else None
            for statement in parse(f"INSERT INTO t VALUES ({number})"):
                session.carry_out(transaction, statement)
            if transaction is not None:
                transaction.commit()
        session.close()

    registrar = threading.Thread(target=register)
    writers = [threading.Thread(target=write, args=(first,)) for first in (100, 200, 300)]
    registrar.start()
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    stop.set()
    registrar.join(60)
    expected = [1, *(first + each for first in (100, 200, 300) for each in range(6))]
    paths = lake.session.snapshot(TableName(("t",))).select(None)["path"].to_pylist()
    tables = [pq.read_table(lake.folder / "t" / path) for path in paths]
    assert sorted(pa.concat_tables(tables)["id"].to_pylist()) == expected
    assert lake.catalog.transactions.entries() == []
    assert lake.catalog.locks.entries() == []


def test_another_epoch_is_refused(lake: Lake) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    lake.catalog._fence.epoch = 9
    with pytest.raises(Unavailable, match="connect again"):
        lake.begin("INSERT INTO t VALUES (3)")
    with pytest.raises(Unavailable, match="connect again"):
        tx.commit()


def test_a_path_table_is_not_among_the_unregistered(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = lake.path_table((lake.folder / "path").as_uri())
    stage = Transaction.stage
    seen: list[bool] = []

    def look_and_stage(self: Transaction, handle: Any, change: Any) -> None:
        seen.append(lake.catalog.unregistered.has(self.id))
        stage(self, handle, change)

    monkeypatch.setattr(Transaction, "stage", look_and_stage)
    lake.run(f"INSERT INTO delta.`{place}` VALUES (1, 'a')")
    assert seen == [False]


def test_a_place_is_looked_up_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    place = lake.path_table((lake.folder / "path").as_uri())
    find = Engine.find
    found: list[object] = []

    def find_and_note(self: Engine, table: Any, database: str) -> Any:
        found.append(table)
        return find(self, table, database)

    monkeypatch.setattr(Engine, "find", find_and_note)
    lake.run(f"INSERT INTO delta.`{place}` VALUES (1, 'a')")
    assert found == []


def test_the_thread_that_used_it_last_is_known(lake: Lake) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    assert lake.catalog.locks._last_threads[tx.id] is threading.current_thread()


def test_an_idle_process_does_no_upkeep(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    monkeypatch.setattr(lake.catalog.sessions, "_upkeep", lambda: steps.append(1))
    lake.catalog.sessions.renew()
    lake.catalog.sessions.renew()
    assert len(steps) == 1
    lake.run("INSERT INTO t VALUES (2)")
    lake.catalog.sessions.renew()
    assert len(steps) == 2


def test_a_lock_request_makes_others_take_theirs(lake: Lake, other: Lake) -> None:
    rival = other.session.begin()
    rival.registration.make()
    lake.begin("INSERT INTO t VALUES (2)")
    [entry] = [each for each in other.catalog.tables("default") if each.name == "t"]
    resource = Resource(
        type=ResourceType.OBJECT, database=entry.database_number, entity=entry.number
    )
    request = LockRequest(resource=resource, mode=LockMode.SCH_M)
    with pytest.raises(LockTimeout):
        other.catalog.locks.acquire(other.session.number(), rival.id, [request], 0)


def test_a_view_is_expanded(lake: Lake) -> None:
    create_view(lake.catalog, "default", "w", "SELECT id FROM t", ())
    tx = lake.begin()
    with pytest.raises(AssertionError, match="Spark isn't needed here"):  # it was admitted
        lake.rows("SELECT id FROM w", tx)
    assert lake.catalog.locks.entries() == []


def test_the_names_of_a_statement_are_looked_up_in_what_its_admission_saw(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the catalog's log is a request: each admission makes one, and no name does."""
    create_view(lake.catalog, "default", "w", "SELECT id FROM t", ())
    looks: list[int] = []
    apply_next = CatalogLog.apply_next

    def look(self: CatalogLog, window: int = 1) -> bool:
        looks.append(window)
        return apply_next(self, window)

    monkeypatch.setattr(CatalogLog, "apply_next", look)
    with pytest.raises(AssertionError, match="Spark isn't needed here"):
        lake.rows("SELECT id FROM w, u, t")
    assert looks == [1, 1], "the statement's, and that of the tables that the view reads"


def test_a_definition_waits_for_those_of_its_process(lake: Lake, other: Lake) -> None:
    lake.begin("INSERT INTO t VALUES (2)")
    other.session.lock_timeout_ms = 0
    with pytest.raises(LockTimeout):
        other.run("DROP TABLE t")


def test_each_commit_has_an_instant_of_its_own(lake: Lake) -> None:
    before = lake.catalog.ledger.sequence()
    lake.run("INSERT INTO t VALUES (2); INSERT INTO t VALUES (3)")
    commits = lake.catalog.ledger.newest_commits(2)
    assert [commit.sequence for commit in commits] == [before + 2, before + 1]
    assert all(commit.time_ms > 0 for commit in commits)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_an_unsettled_registration_leaves_nothing(
    lake: Lake, other: Lake, apart: None, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    write = ReplicatedDatabase.write

    def write_unsettled(self: ReplicatedDatabase, work: Callable[[Any], Any]) -> Any:
        write(self, work)
        raise CommitUnsettled("no reply")

    monkeypatch.setattr(ReplicatedDatabase, "write", write_unsettled)
    with pytest.raises(CommitUnsettled):
        lake.catalog.unregistered.register()
    monkeypatch.undo()
    lake.catalog.unregistered.register()
    getattr(tx, end)()
    assert other.ids("t") == ([1, 2] if end == "commit" else [1])
    assert other.catalog.transactions.entries() == []
    assert other.catalog.locks.entries() == []


def test_files_that_a_vacuum_took_are_no_damage_at_the_commit(
    lake: Lake, other: Lake, apart: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx = lake.begin("INSERT INTO t VALUES (2)")
    other.catalog.transactions.others_open("")

    def fail(*_: object) -> None:
        raise CorruptTable("t: a file is missing")

    monkeypatch.setattr("txlake.session.transaction.write_changes", fail)
    with pytest.raises(AdmissionOutdated, match="VACUUM"):
        tx.commit()
    assert other.ids("t") == [1]


def test_run_repeats_what_is_outdated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Transaction.commit
    failed: list[str] = []

    def commit_second(self: Transaction) -> None:
        if not failed:
            failed.append(self.id)
            raise AdmissionOutdated("once")
        commit(self)

    with txlake.connect(str(tmp_path), catalog="warehouse") as lake:
        lake.write(pa.table({"id": [1]}), "t")
        monkeypatch.setattr(Transaction, "commit", commit_second)
        lake.run(lambda tx: tx.write(pa.table({"id": [2]}), "t", "append"))
        assert len(failed) == 1
        assert lake._session.snapshot(TableName(("t",))).files.totals.files == 2
