"""What a statement holds before it runs, and that names mean the same once it holds it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from tests.catalog.open_transactions import write_transaction
from tests.catalog.view_changes import change_view, create_view
from tests.session.offline import Offline
from txlake.catalog.database import Database
from txlake.catalog.relations import tables
from txlake.commands import COMMANDS, HANDLERS
from txlake.commands.data import write
from txlake.commands.placement import locate_target
from txlake.conflict.locking import LockMode, LockRequest, Queued, Resource, ResourceType
from txlake.errors import InvalidRequest, LockTimeout, Unavailable
from txlake.session.admission import admit, admit_alone, admit_new
from txlake.session.catalog_access import registered
from txlake.session.command import TableLock
from txlake.session.conflict_turns import Turns
from txlake.session.context import Context
from txlake.session.engine import Engine
from txlake.session.session import Session
from txlake.session.statement_tables import StatementTables
from txlake.session.transaction import Transaction
from txlake.session.view_queries import Viewed
from txlake.sql import parse
from txlake.sql.statements import NativeFrame, Select, TableName, TablePath, Write

T, U, NEW = TableName(("T",)), TableName(("u",)), TableName(("New",))
PATH = TablePath("memory://admission/path")
SCH_S, S, IX, X, SCH_M = LockMode.SCH_S, LockMode.S, LockMode.IX, LockMode.X, LockMode.SCH_M


@pytest.fixture
def lake() -> Offline:
    """A lake with the tables t and u."""
    made = Offline()
    made.run("CREATE TABLE t (id INT); CREATE TABLE u (id INT)")
    return made


def test_a_transaction_for_one_commit_is_known_to_the_catalog(lake: Offline) -> None:
    with registered(lake.engine, lake.session.number) as known:
        lake.catalog.transactions.require_open(known)
    with pytest.raises(Unavailable):
        lake.catalog.transactions.require_open(known)


def context_of(lake: Offline, *, explicit: bool = True, timeout_ms: int = 0) -> Context:
    """A statement's context, in a transaction of a session of its own."""
    transaction = Session(lake.engine, HANDLERS).begin(explicit=explicit)
    return Context(
        tables=StatementTables(
            engine=lake.engine, transaction=transaction, database="default", begun_ms=0.0
        ),
        writes=True,
        lock_timeout_ms=timeout_ms,
        use=_stays,
    )


def _stays(database: str) -> None:
    raise AssertionError(f"no statement here changes to {database}")


def held(lake: Offline, transaction: Transaction) -> list[tuple[str, str, str]]:
    """What a transaction holds or waits for, in the order of asking: type, mode, what it is."""
    tables = {entry.number: entry.name for entry in lake.catalog.tables("default")}
    tables |= {entry.number: entry.name for entry in lake.catalog.views.entries("default")}
    return [
        (
            one.resource.type.value,
            one.mode.value,
            one.resource.description or tables.get(one.resource.entity, ""),
        )
        for one in lake.catalog.locks.entries()
        if one.transaction_id == transaction.id
    ]


@pytest.mark.parametrize(
    ("wanted", "leaves", "locks"),
    [
        ((T, IX), False, [("DATABASE", "S", ""), ("OBJECT", "IX", "t")]),
        ((T, SCH_S), False, [("DATABASE", "S", ""), ("OBJECT", "Sch-S", "t")]),
        (
            (T, SCH_M),
            False,
            [("DATABASE", "S", ""), ("KEY", "X", "t"), ("OBJECT", "Sch-M", "t")],
        ),
        ((T, SCH_M), True, [("DATABASE", "S", ""), ("OBJECT", "Sch-S", "t")]),
        ((T, IX), True, [("DATABASE", "S", ""), ("OBJECT", "Sch-S", "t")]),
        ((NEW, SCH_M), False, [("DATABASE", "S", ""), ("KEY", "X", "new")]),
        ((NEW, SCH_M), True, [("DATABASE", "S", ""), ("KEY", "X", "new")]),
        ((NEW, IX), False, [("DATABASE", "S", ""), ("KEY", "X", "new")]),
        ((NEW, SCH_S), False, []),
        ((TableName(("nowhere", "t")), SCH_M), False, []),
        ((PATH, SCH_M), False, []),
    ],
)
def test_which_locks_a_table_asks_for(
    lake: Offline,
    wanted: tuple[Any, LockMode],
    leaves: bool,
    locks: list[tuple[str, str, str]],
) -> None:
    context = context_of(lake)
    admit(context, [wanted], leaves=leaves)
    assert held(lake, context.transaction) == locks


def test_everybody_asks_in_one_order(lake: Offline) -> None:
    expected = [
        ("DATABASE", "S", ""),
        ("KEY", "X", "new"),
        ("KEY", "X", "u"),
        ("OBJECT", "IX", "t"),
        ("OBJECT", "Sch-M", "u"),
    ]
    wanted = [(TableName(("u",)), SCH_M), (T, IX), (NEW, IX)]
    for order in (wanted, wanted[::-1]):
        context = context_of(lake)
        admit(context, order)
        assert held(lake, context.transaction) == expected
        context.transaction.rollback()


def test_a_path_table_needs_no_catalog(lake: Offline) -> None:
    engine = lake.path_engine()
    transaction = Transaction(id="1", engine=engine, session_number=lambda: 1)
    context = Context(
        tables=StatementTables(
            engine=engine, transaction=transaction, database="default", begun_ms=0.0
        ),
        writes=True,
        use=_stays,
    )
    admit(context, [(PATH, SCH_M), (T, SCH_M)])
    admit_alone(context, "default", "DROP DATABASE")


def test_a_table_of_the_lake_is_locked_by_its_place_too(lake: Offline) -> None:
    context, place = context_of(lake), TablePath(lake.tables()["default.t"])
    admit(context, [(place, IX)])
    assert held(lake, context.transaction) == [("DATABASE", "S", ""), ("OBJECT", "IX", "t")]
    handle = context.tables.find(place)
    assert handle is not None
    assert handle.entry == lake.catalog.find("default", "t")


def test_who_leaves_a_table_as_it_is_leaves_no_trace(lake: Offline) -> None:
    alone = context_of(lake, explicit=False)
    admit(alone, [(T, SCH_M)], leaves=True)
    assert lake.catalog.transactions.entries() == []
    admit(alone, [(NEW, SCH_M)], leaves=True)
    assert len(held(lake, alone.transaction)) == 2


def test_a_table_that_the_transaction_renamed_is_its_own_already(lake: Offline) -> None:
    context = context_of(lake)
    lake.run_in(context.transaction, "ALTER TABLE t RENAME TO other")
    before = held(lake, context.transaction)
    admit(context, [(TableName(("other",)), IX), (T, SCH_S)])
    assert held(lake, context.transaction) == before
    found = context.tables.find(TableName(("other",)))
    assert found is not None
    assert context.transaction.open(found).view.is_created
    assert context.tables.find(T) is None


def test_a_table_that_the_transaction_made_is_its_own_already(lake: Offline) -> None:
    context = context_of(lake)
    lake.run_in(context.transaction, "CREATE TABLE new (id INT)")
    before = held(lake, context.transaction)
    admit(context, [(NEW, SCH_M)])
    assert held(lake, context.transaction) == before


def test_who_makes_what_is_not_there_yet_holds_its_name(lake: Offline) -> None:
    alone = context_of(lake, explicit=False)
    admit(alone, [(NEW, SCH_M)], leaves=True)
    assert held(lake, alone.transaction) == [("DATABASE", "S", ""), ("KEY", "X", "new")]


def test_a_new_table_is_locked_as_such(lake: Offline) -> None:
    context = context_of(lake)
    entry = lake.catalog.find("default", "t")
    assert entry is not None
    admit_new(context, entry)
    assert held(lake, context.transaction) == [("OBJECT", "Sch-M", "t")]


def test_a_statement_waits_for_who_was_first(lake: Offline) -> None:
    first, second = context_of(lake), context_of(lake)
    admit(first, [(T, SCH_M)])
    with pytest.raises(LockTimeout):
        admit(second, [(T, IX)])
    with pytest.raises(LockTimeout):
        admit(context_of(lake), [(T, SCH_S)])
    first.transaction.rollback()
    admit(second, [(T, IX)])


def test_a_select_of_its_own_leaves_no_trace_unless_somebody_makes_it_wait(lake: Offline) -> None:
    alone = context_of(lake, explicit=False)
    admit(alone, [(T, SCH_S)])
    assert held(lake, alone.transaction) == []
    assert lake.catalog.transactions.entries() == []
    explicit = context_of(lake)
    admit(explicit, [(T, SCH_S)])
    assert len(held(lake, explicit.transaction)) == 2
    writing = context_of(lake, explicit=False)
    admit(writing, [(T, IX)])
    assert len(held(lake, writing.transaction)) == 2
    blocked = context_of(lake, explicit=False)
    explicit.transaction.rollback()
    writing.transaction.rollback()
    admit(first := context_of(lake), [(T, SCH_M)])
    with pytest.raises(LockTimeout):
        admit(blocked, [(T, SCH_S)])
    first.transaction.rollback()


def after_waiting_for(
    lake: Offline, monkeypatch: pytest.MonkeyPatch, text: str, wanted: TableLock
) -> tuple[Context, int]:
    """A statement that was admitted after another session's, and how often it waited."""
    other = context_of(lake)
    lake.run_in(other.transaction, text)
    wait = lake.catalog.locks.wait
    waits: list[Queued] = []

    def later(asked: Queued, heard: int, timeout_ms: int) -> None:
        waits.append(asked)
        other.transaction.commit()
        wait(asked, heard, timeout_ms)

    monkeypatch.setattr(lake.catalog.locks, "wait", later)
    context = context_of(lake, timeout_ms=-1)
    admit(context, [wanted])
    return context, len(waits)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("DROP TABLE t; CREATE TABLE t (id INT, x INT)", True),
        ("ALTER TABLE t RENAME TO other", False),
    ],
)
def test_a_name_that_means_something_else_now_is_looked_up_again(
    lake: Offline, monkeypatch: pytest.MonkeyPatch, text: str, means: bool
) -> None:
    context, waits = after_waiting_for(lake, monkeypatch, text, (T, IX))
    assert waits == 1
    entry = lake.catalog.find("default", "t")
    assert (entry is not None) == means
    kinds = [kind for kind, _, name in held(lake, context.transaction) if name == "t"]
    assert kinds == (["OBJECT"] if means else ["KEY"])
    found = context.tables.find(T)
    assert (found is not None and found.entry == entry) if means else found is None


def test_who_waited_reads_what_came_meanwhile(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "ALTER TABLE t ADD COLUMNS (x INT)"
    context, waits = after_waiting_for(lake, monkeypatch, text, (T, IX))
    assert waits == 1
    handle = context.tables.find(T)
    assert handle is not None
    assert context.transaction.open(handle).view.schema.names == ("id", "x")
    lake.run("ALTER TABLE u ADD COLUMNS (y INT)")
    admit(context, [(U, SCH_S)])
    handle = context.tables.find(U)
    assert handle is not None
    assert context.transaction.open(handle).view.schema.names == ("id",)


@pytest.mark.parametrize("mode", [SCH_S, IX])
def test_a_statement_asks_the_catalog_once(
    lake: Offline, monkeypatch: pytest.MonkeyPatch, mode: LockMode
) -> None:
    context = context_of(lake, explicit=False)
    context.transaction.session_number()
    begun = []
    transaction = Database._transaction

    def counted(*args: Any) -> Any:
        if threading.current_thread().name not in {"txlake-delayed", "txlake-heartbeat"}:
            begun.append(args)
        return transaction(*args)

    monkeypatch.setattr(Database, "_transaction", counted)
    admit(context, [(T, mode)])
    handle = context.tables.find(T)
    assert handle is not None
    assert context.transaction.open(handle).view.is_created
    assert len(begun) == 1


def test_a_statement_of_its_own_reads_one_instant(lake: Offline) -> None:
    context = context_of(lake, explicit=False)
    admit(context, [(T, SCH_S)])
    lake.run("ALTER TABLE u ADD COLUMNS (y INT)")
    admit(context, [(U, SCH_S)])
    handle = context.tables.find(U)
    assert handle is not None
    assert context.transaction.open(handle).view.schema.names == ("id",)


def test_lock_table_is_no_read(lake: Offline) -> None:
    context = context_of(lake)
    admit(context, [(T, X)], pins=False)
    assert context.transaction.sequence is None
    lake.run("ALTER TABLE u ADD COLUMNS (y INT)")
    admit(context, [(U, SCH_S)])
    handle = context.tables.find(U)
    assert handle is not None
    assert context.transaction.open(handle).view.schema.names == ("id", "y")
    [listed] = [
        one for one in lake.catalog.transactions.entries() if one.id == context.transaction.id
    ]
    assert listed.sequence == context.transaction.sequence


def test_what_a_name_means_stays_once_the_locks_are_held(lake: Offline) -> None:
    context = context_of(lake)
    admit(context, [(T, IX)])
    handle = context.tables.find(T)
    assert context.tables.find(T) is handle
    assert handle is not None
    assert handle.entry == lake.catalog.find("default", "t")


def writing(table: TableName) -> Write:
    return Write(table=table, source=NativeFrame(pa.table({"id": [1]})), mode="append")


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_write_makes_the_database_and_locks_the_name_in_it(
    lake: Offline, is_committed: bool
) -> None:
    """Another session may make the database after nothing was locked, and a table of that name."""
    context, statement = context_of(lake), writing(TableName(("made", "t")))
    admit(context, COMMANDS[type(statement)].all_locks(statement))
    lake.run("CREATE DATABASE made")
    other = context_of(lake)
    lake.run_in(other.transaction, "CREATE TABLE made.t (id INT)")
    if not is_committed:
        with pytest.raises(LockTimeout):
            write(context, statement)
        return
    other.transaction.commit()
    assert write(context, statement)["num_inserted_rows"] == 1
    assert ("OBJECT", "IX", "") in held(lake, context.transaction)


def test_a_name_without_a_database_means_nothing_to_the_statement(lake: Offline) -> None:
    context, table = context_of(lake), TableName(("made", "t"))
    admit(context, [(table, SCH_M)])
    lake.run("CREATE DATABASE made; CREATE TABLE made.t (id INT)")
    assert context.tables.find(table) is None
    with pytest.raises(InvalidRequest, match="there is no database 'made'"):
        locate_target(context, table)
    admit(context, [(table, SCH_M)])
    assert context.tables.find(table) is not None


def test_a_transaction_that_was_killed_carries_nothing_out(lake: Offline) -> None:
    context = context_of(lake)
    lake.catalog.transactions.kill(context.transaction.id)
    nothing: list[TableLock] = []
    for wanted in (nothing, [(T, SCH_S)]):
        with pytest.raises(Unavailable, match="was killed"):
            admit(context, wanted)


V, W = TableName(("v",)), TableName(("W",))


def test_a_view_is_locked_with_the_tables_behind_it(lake: Offline) -> None:
    lake.catalog.create_database("d")
    create_view(lake.catalog, "default", "v", "SELECT * FROM t JOIN w ON true", ())
    create_view(lake.catalog, "default", "w", "SELECT * FROM u, nowhere.x", ())
    context = context_of(lake)
    admit(context, [(V, SCH_S)])
    assert sorted(held(lake, context.transaction)) == [
        ("DATABASE", "S", ""),
        *(("OBJECT", "Sch-S", name) for name in ("t", "u", "v", "w")),
    ]
    assert context.tables.find(T) is not None
    assert context.tables.find(V) is None
    changing = context_of(lake)
    with pytest.raises(LockTimeout, match=r"view default\.w"):
        admit(changing, [(W, SCH_M)])
    context.transaction.rollback()
    admit(changing, [(W, SCH_M)])
    assert ("KEY", "X", "w") in held(lake, changing.transaction)
    assert ("OBJECT", "Sch-M", "w") in held(lake, changing.transaction)


def test_turns_come_before_the_locks_of_a_view_and_its_tables(lake: Offline) -> None:
    create_view(lake.catalog, "default", "v", "SELECT * FROM t", ())
    context = context_of(lake)
    resource = Resource(type=ResourceType.APPLICATION, database=1, entity=1, description="turn")
    context.turns = Turns((LockRequest(resource=resource, mode=X),))
    admit(context, [(TableName(("v",)), SCH_S)])
    found = held(lake, context.transaction)
    assert found[0] == ("APPLICATION", "X", "turn")
    assert [what for _, _, what in found[2:]] == ["t", "v"]


def test_a_statement_without_turns_waits_as_the_session_says(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_turn(*_: object, **__: object) -> None:
        raise AssertionError("it has no turns")

    monkeypatch.setattr("txlake.session.admission._admission_in_turn", in_turn)
    context = context_of(lake)
    admit(context, [(T, IX)])
    assert held(lake, context.transaction)


def test_a_select_from_a_view_leaves_no_trace_either(lake: Offline) -> None:
    create_view(lake.catalog, "default", "v", "SELECT * FROM t", ())
    alone = context_of(lake, explicit=False)
    admit(alone, [(V, SCH_S)])
    assert lake.catalog.transactions.entries() == []
    assert alone.transaction.sequence is not None
    changing = context_of(lake)
    admit(changing, [(T, SCH_M)])
    with pytest.raises(LockTimeout):
        admit(context_of(lake, explicit=False), [(V, SCH_S)])


def test_names_in_a_view_are_of_its_database(lake: Offline) -> None:
    lake.run("CREATE DATABASE d; CREATE TABLE d.t (id INT)")
    create_view(lake.catalog, "d", "v", "SELECT * FROM t", ())
    context = context_of(lake)
    admit(context, [(TableName(("d", "v")), SCH_S)])
    inner = lake.catalog.find("d", "t")
    assert inner is not None
    locked = {one.resource.entity for one in lake.catalog.locks.entries()}
    assert inner.number in locked
    outer = lake.catalog.find("default", "t")
    assert outer is not None
    assert outer.number not in locked


def test_views_in_a_circle_are_locked_once(lake: Offline) -> None:
    create_view(lake.catalog, "default", "v", "SELECT * FROM t", ())
    create_view(lake.catalog, "default", "w", "SELECT * FROM v", ())
    entry = lake.catalog.views.find("default", "v")
    assert entry is not None
    change_view(lake.catalog, entry, "SELECT * FROM w, t", ())
    context = context_of(lake)
    admit(context, [(V, SCH_S)])
    names = [name for kind, _, name in held(lake, context.transaction) if kind == "OBJECT"]
    assert sorted(names) == ["t", "v", "w"]


def test_a_temporary_view_has_no_lock_of_its_own(
    lake: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    [statement] = parse("SELECT * FROM t")
    assert isinstance(statement, Select)
    view = Viewed(name="v", database="default", query=statement.query)
    monkeypatch.setattr(Engine, "temporary_view", lambda _, name: view if name == V else None)
    context = context_of(lake)
    admit(context, [(V, SCH_S)])
    assert held(lake, context.transaction) == [("DATABASE", "S", ""), ("OBJECT", "Sch-S", "t")]


def test_a_database_is_ones_own_while_nobody_uses_it(lake: Offline) -> None:
    user, alone = context_of(lake), context_of(lake)
    admit(user, [(T, IX)])
    with pytest.raises(
        InvalidRequest, match="DROP DATABASE: other sessions use database 'default'"
    ):
        admit_alone(alone, "DEFAULT", "DROP DATABASE")
    user.transaction.rollback()
    admit_alone(alone, "default", "DROP DATABASE")
    assert held(lake, alone.transaction) == [("DATABASE", "X", "")]
    with pytest.raises(LockTimeout):
        admit(context_of(lake), [(T, SCH_M)])


def test_a_database_that_is_not_there_needs_no_lock(lake: Offline) -> None:
    context = context_of(lake)
    admit_alone(context, "nowhere", "DROP DATABASE")
    assert held(lake, context.transaction) == []


def test_a_statement_of_its_own_is_known_before_it_holds_a_lock(lake: Offline) -> None:
    asks: list[Callable[[Context], None]] = [
        lambda context: admit(context, [(T, IX)]),
        lambda context: admit_alone(context, "default", "DROP DATABASE"),
    ]
    for ask in asks:
        context = context_of(lake, explicit=False)
        ask(context)
        assert [one.id for one in lake.catalog.transactions.entries()] == [context.transaction.id]
        context.transaction.rollback()


LONG, LONGER_IN_LOWER_CASE = "x" * 256, "\u0130" * 200


@pytest.mark.parametrize("name", [LONG, LONGER_IN_LOWER_CASE])
@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE {} (id INT)",
        "CREATE TABLE {} (id INT) LOCATION 'memory://elsewhere/t'",
        "CREATE TABLE {} CLONE t",
        "ALTER TABLE t RENAME TO {}",
        "INSERT INTO {} VALUES (1)",
        "DROP TABLE IF EXISTS {}",
        "CREATE DATABASE {}",
        "CREATE TABLE {}.t (id INT)",
    ],
)
def test_a_name_that_is_too_long_says_so(lake: Offline, sql: str, name: str) -> None:
    """PostgreSQL would refuse the lock's row, and SQLite nothing."""
    with pytest.raises(InvalidRequest, match=r"at most 25\d; |there is no database"):
        lake.run(sql.format(f"`{name}`"))
    assert [entry.name for entry in lake.catalog.tables("default")] == ["t", "u"]
    assert [entry.name for entry in lake.catalog.databases()] == ["default"]
    assert lake.catalog.locks.entries() == []


def test_a_long_name_that_is_there_already_keeps_working(lake: Offline) -> None:
    def rename() -> None:
        with write_transaction(lake.catalog._database) as connection:
            longer = sa.update(tables).where(tables.c.name == "t")
            connection.execute(longer.values(name=LONG, folded_name=LONG))

    lake.catalog._database.run_shielded(rename)
    lake.run(f"ALTER TABLE {LONG} ADD COLUMN x INT; DROP TABLE {LONG}")
    assert [entry.name for entry in lake.catalog.tables("default")] == ["u"]


@pytest.mark.parametrize(
    ("sql", "is_allowed"),
    [
        ("CREATE TABLE `{}` (id INT)", False),  # 340 bytes
        ("CREATE TABLE `{}` (id INT) LOCATION 'memory://elsewhere/long'", True),
        ("CREATE DATABASE `{}`", False),
        ("ALTER TABLE t RENAME TO `{}`", True),  # its folder keeps its name
    ],
)
def test_a_folder_of_the_warehouse_has_a_name_that_file_systems_take(
    lake: Offline, sql: str, is_allowed: bool
) -> None:
    name = "\u00e4" * 170
    if is_allowed:
        lake.run(sql.format(name))
    else:
        with pytest.raises(InvalidRequest, match=r"34\d bytes, and a folder's at most 255;"):
            lake.run(sql.format(name))
    names = {entry.name for entry in lake.catalog.tables("default")}
    assert (name in names) is is_allowed


@pytest.mark.parametrize(("size", "is_allowed"), [(252, True), (253, False)])
def test_a_databases_folder_has_an_ending(lake: Offline, size: int, is_allowed: bool) -> None:
    name = "d" * size
    if is_allowed:
        lake.run(f"CREATE DATABASE {name}; CREATE TABLE {name}.{'t' * 255} (id INT)")
    else:
        with pytest.raises(InvalidRequest, match="256 bytes, and a folder's at most 255"):
            lake.run(f"CREATE DATABASE {name}")
