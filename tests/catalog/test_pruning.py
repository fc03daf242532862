"""The catalog is kept short: what goes, what stays, and what is told of an instant that is gone."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tests.catalog.ledgers import User, end_lease, execute, selected, version
from tests.catalog.open_transactions import write_transaction
from txlake.catalog import Catalog, place_facts, pruning
from txlake.catalog.counter_rows import lock_sequence
from txlake.catalog.database import CommitUnsettled
from txlake.catalog.pruning import Pruner
from txlake.errors import InvalidRequest, OutcomeUnknown, Unavailable
from txlake.ports import DroppedTable, NewTable, Ratification, Ratified, VersionRange
from txlake.system import System

pytestmark = pytest.mark.usefixtures("direct")


@pytest.fixture
def user(opened: Callable[[], Catalog]) -> User:
    return User(opened())


def written(user: User, table_id: str, first: int, last: int, *, publishes: bool = True) -> None:
    for number in range(first, last + 1):
        user.write(version(table_id, number))
    if publishes:
        user.catalog.ledger.record_publication({table_id: VersionRange(0, last)})


def pruned(user: User, kept: int) -> None:
    Pruner(user.catalog._database, kept).step()


def versions(url: str, table_id: str) -> list[object]:
    query = f"SELECT version FROM txlake_commits WHERE table_id = '{table_id}' ORDER BY version"
    return [row[0] for row in selected(url, query)]


def floor(url: str) -> object:
    rows = selected(url, "SELECT value FROM txlake_counters WHERE name = 'floor'")
    return rows[0][0] if rows else None


def test_the_newest_stay(user: User, url: str) -> None:
    user.create("a", "b")
    written(user, "a", 1, 20)
    pruned(user, 5)
    # Instants 17 to 21; at 17 the table was at version 16.
    assert floor(url) == 17
    assert versions(url, "a") == [16, 17, 18, 19, 20]
    assert versions(url, "b") == [0]  # the newest of its table
    assert [user.catalog.ledger.version_at("a", at) for at in (17, 18, 21)] == [16, 17, 20]
    assert user.catalog.ledger.version_at("b", 17) == 0
    head = user.catalog.ledger.head("a")
    assert head is not None
    assert head.version == 20
    written(user, "a", 21, 21)


def test_an_instant_that_is_gone_is_told(user: User) -> None:
    user.create("a")
    written(user, "a", 1, 9)
    pruned(user, 5)
    with pytest.raises(Unavailable, match=r"instant 5 .* expected instant 6 or a later one"):
        user.catalog.ledger.version_at("a", 5)


def test_what_open_transactions_read_stays(user: User, url: str) -> None:
    user.create("a")
    written(user, "a", 1, 3)
    reader = user.begin()
    assert user.catalog.transactions.pin(reader) == 4
    written(user, "a", 4, 12)
    pruned(user, 2)
    assert versions(url, "a") == list(range(3, 13))
    assert user.catalog.ledger.version_at("a", 4) == 3
    user.catalog.transactions.end(reader)
    pruned(user, 2)
    assert versions(url, "a") == [11, 12]


def test_what_an_open_transaction_may_come_to_read_stays(user: User, url: str) -> None:
    user.create("a")
    written(user, "a", 1, 3)
    reader = user.begin()  # its instant isn't noted
    written(user, "a", 4, 12)
    pruned(user, 2)
    assert versions(url, "a") == list(range(3, 13))
    assert user.catalog.ledger.oldest_read("a") == 3
    user.catalog.transactions.end(reader)
    pruned(user, 2)
    assert user.catalog.ledger.oldest_read("a") == 12


def test_what_is_not_published_stays(user: User, url: str) -> None:
    user.create("a", "b")
    written(user, "a", 1, 9, publishes=False)
    written(user, "b", 1, 9)
    pruned(user, 1)
    assert versions(url, "a") == list(range(10))
    assert versions(url, "b") == [9]
    head = user.catalog.ledger.head("a")
    assert head is not None
    assert [one.content for one in head.pending] == [f"a {at}".encode() for at in range(10)]
    user.catalog.ledger.record_publication({"a": VersionRange(0, 9)})
    written(user, "b", 10, 10)
    pruned(user, 1)
    assert versions(url, "a") == [9]


def test_what_is_left_of_forgotten_tables_goes(user: User, url: str) -> None:
    user.create("a", "b")
    written(user, "a", 1, 3)
    user.ratify(names=(DroppedTable(id="a"),))
    user.catalog.ledger.forget("a")
    written(user, "b", 1, 5)
    pruned(user, 2)
    assert versions(url, "a") == []
    assert [one.table_id for one in user.catalog.ledger.newest_commits()] == ["b", "b"]


def test_what_a_forgotten_table_did_of_late_is_shown(user: User, url: str) -> None:
    user.create("b")
    written(user, "b", 1, 5)
    user.create("a")
    user.ratify(names=(DroppedTable(id="a"),))
    user.catalog.ledger.record_publication({"a": VersionRange(0, 0)})
    user.catalog.ledger.forget("a")
    pruned(user, 3)
    assert versions(url, "a") == [0]


def test_a_dropped_tables_rows_stay_until_it_is_forgotten(user: User, url: str) -> None:
    user.create("a", "b")
    written(user, "a", 1, 3, publishes=False)
    user.ratify(names=(DroppedTable(id="a"),))
    written(user, "b", 1, 5)
    pruned(user, 2)
    assert versions(url, "a") == [0, 1, 2, 3]
    [table] = user.catalog.ledger.dropped_tables()
    assert [one.version for one in table.pending] == [0, 1, 2, 3]


def test_ratifications_of_names_alone_go_too(user: User, url: str) -> None:
    for number in range(9):
        user.name(f"t{number}")
    user.create("a")
    pruned(user, 3)
    rows = selected(url, "SELECT sequence FROM txlake_bare_ratifications ORDER BY sequence")
    assert rows == [(8,), (9,)]


def test_a_tables_later_version_keeps_no_others(user: User, url: str) -> None:
    """Each table for itself: another's newer versions say nothing of this one."""
    user.create("a")
    user.create("b")
    written(user, "a", 1, 5)
    pruned(user, 1)
    assert (versions(url, "a"), versions(url, "b")) == ([5], [0])


def test_many_rows_go_in_several_steps(user: User, url: str) -> None:
    user.create("a")
    rows = ", ".join(f"('a', {at}, {at + 1}, 'x', 0)" for at in range(1, 2_600))
    execute(
        url,
        "INSERT INTO txlake_commits (table_id, version, sequence, transaction_id, time_ms) "
        f"VALUES {rows}",
        "UPDATE txlake_tables SET head = 2599, published = 2599",
        "UPDATE txlake_counters SET value = 2600 WHERE name = 'sequence'",
    )
    pruned(user, 10)
    assert versions(url, "a") == list(range(2590, 2600))


def test_what_was_interrupted_is_gone_the_next_time(user: User, url: str) -> None:
    user.create("a")
    written(user, "a", 1, 9)
    pruner = Pruner(user.catalog._database, 2)
    assert pruner._raise_floor()
    assert len(versions(url, "a")) == 10
    written(user, "a", 10, 11)
    pruned(user, 2)
    assert versions(url, "a") == [10, 11]


def test_little_is_left_until_it_is_more(user: User, url: str) -> None:
    user.create("a")
    written(user, "a", 1, 109)
    pruner = Pruner(user.catalog._database, 100)
    pruner.step()
    assert floor(url) == 11
    written(user, "a", 110, 118)
    pruner.step()
    assert floor(url) == 11
    written(user, "a", 119, 119)
    pruner.step()
    assert floor(url) == 21


def test_the_floor_never_falls(user: User, url: str) -> None:
    user.create("a")
    written(user, "a", 1, 9)
    pruned(user, 2)
    pruned(user, 5)
    assert floor(url) == 9
    assert versions(url, "a") == [8, 9]


def test_who_prunes_at_the_same_time_lowers_nothing(
    user: User, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.create("a")
    written(user, "a", 1, 9)
    pruned(user, 5)

    def later(connection: Connection) -> int:
        connection.execute(sa.text("UPDATE txlake_counters SET value = 9 WHERE name = 'floor'"))
        return lock_sequence(connection)

    monkeypatch.setattr(pruning, "lock_sequence", later)
    assert not Pruner(user.catalog._database, 4)._raise_floor()
    assert floor(url) == 9


def test_who_ratifies_and_pins_between_the_steps(user: User, url: str) -> None:
    user.create("a")
    written(user, "a", 1, 9)
    pruner = Pruner(user.catalog._database, 1)
    assert pruner._raise_floor()
    reader = user.begin()
    assert user.catalog.transactions.pin(reader) == 10
    written(user, "a", 10, 12)
    while pruner._delete_stale():
        pass
    assert versions(url, "a") == [9, 10, 11, 12]
    assert user.catalog.ledger.version_at("a", 10) == 9


def test_nobody_keeps_less_than_the_newest(user: User) -> None:
    with pytest.raises(InvalidRequest, match=r"commits_kept=0: expected at least 1"):
        Pruner(user.catalog._database, 0)


@pytest.mark.parametrize("seed", range(3))
def test_the_book_tells_of_every_instant_from_its_floor_on(user: User, url: str, seed: int) -> None:
    """Beside a book from which nothing is ever removed."""
    chance = random.Random(seed)
    ids = [f"t{number}" for number in range(4)]
    heads: dict[str, int] = {}
    book: list[dict[str, int]] = [{}]
    pins: dict[str, int] = {}
    user.create(*ids)
    heads.update(dict.fromkeys(ids, 0))
    book.append(dict(heads))
    ledger = user.catalog.ledger
    for _ in range(60):
        match chance.choice(["write"] * 6 + ["publish", "pin", "end", "prune"]):
            case "write":
                chosen = chance.sample(ids, chance.randrange(1, 3))
                user.write(*(version(one, heads[one] + 1) for one in chosen))
                for one in chosen:
                    heads[one] += 1
                book.append(dict(heads))
            case "publish":
                one = chance.choice(ids)
                ledger.record_publication({one: VersionRange(0, chance.randrange(heads[one] + 1))})
            case "pin":
                transaction_id = user.begin()
                pins[transaction_id] = user.catalog.transactions.pin(transaction_id)
            case "end" if pins:
                user.catalog.transactions.end(pins.popitem()[0])
            case "prune":
                pruned(user, chance.randrange(1, 5))
        from_here = max(1, int(str(floor(url) or 0)))
        for at in {from_here, len(book) - 1, *pins.values()}:
            assert {one: ledger.version_at(one, at) for one in ids} == book[at]
    for table in ledger.pending_tables():
        published = [row[0] for row in selected(
            url, f"SELECT published FROM txlake_tables WHERE id = '{table.table_id}'"
        )]  # fmt: skip
        expected = list(range(int(str(published[0])) + 1, heads[table.table_id] + 1))
        assert [one.version for one in table.pending] == expected


# Lost replies


def test_a_trace_that_may_be_gone_settles_nothing(user: User) -> None:
    user.create("a")
    lost = user.begin()
    user.ratify(version("a", 1), transaction_id=lost)
    user.catalog.ledger.record_publication({"a": VersionRange(0, 1)})
    assert user.catalog.ledger._find_ratified([lost])[lost].sequence == 2
    written(user, "a", 2, 9)
    there = user.begin()
    pruned(user, 2)
    with pytest.raises(
        OutcomeUnknown, match=rf"^whether.*{lost}.* seen: the catalog.* from instant 9"
    ):
        user.catalog.ledger._find_ratified([lost, there])
    with pytest.raises(OutcomeUnknown):
        user.catalog.ledger._find_ratified([lost], 8)
    assert user.catalog.ledger._find_ratified([lost], 9) == {}  # or it would be seen
    assert user.catalog.ledger._find_ratified([there]) == {}  # it is still to be ratified


def test_what_was_looked_for_from_its_own_instant_on_is_settled(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A COMMIT whose reply was lost, and that wasn't carried out, long after others were pruned."""
    user.create("a")
    written(user, "a", 1, 9)
    pruned(user, 2)
    request = Ratification(transaction_id="gone", commits=(version("a", 10),))
    made = Ratified(sequence=11, time_ms=0)
    [decision] = user.catalog.ledger._resolve_unknown([request], [made], CommitUnsettled("lost"))
    assert type(decision) is Unavailable
    made = Ratified(sequence=8, time_ms=0)
    [decision] = user.catalog.ledger._resolve_unknown([request], [made], CommitUnsettled("lost"))
    assert type(decision) is OutcomeUnknown


# Sessions


@pytest.mark.parametrize(("over_ms", "is_there"), [(60_000, True), (3_700_000, False)])
def test_sessions_that_nobody_asks_for_go(
    user: User, opened: Callable[[], Catalog], url: str, over_ms: int, is_there: bool
) -> None:
    dead = User(opened())
    dead.begin()
    end_lease(url, dead.session, over_ms)
    pruned(user, 10)
    rows = selected(url, f"SELECT id FROM txlake_sessions WHERE id = {dead.session}")
    assert bool(rows) is is_there
    assert bool(selected(url, "SELECT id FROM txlake_transactions")) is is_there


def test_a_dead_reader_does_not_keep_rows_for_ever(
    user: User, opened: Callable[[], Catalog], url: str
) -> None:
    user.create("a")
    dead = User(opened())
    user.catalog.transactions.pin(dead.begin())
    written(user, "a", 1, 9)
    pruned(user, 2)
    assert versions(url, "a") == list(range(10))
    end_lease(url, dead.session, 4_000_000)
    pruned(user, 2)
    assert versions(url, "a") == [8, 9]


# When


def test_heartbeats_and_new_sessions_prune(sqlite_url: str) -> None:
    catalog = Catalog(sqlite_url, System(), commits_kept=2)
    user = User(catalog)
    user.create("a")
    written(user, "a", 1, 5)
    catalog.sessions.renew()
    assert versions(sqlite_url, "a") == [4, 5]
    written(user, "a", 6, 9)
    catalog.sessions.open()
    assert versions(sqlite_url, "a") == [8, 9]
    catalog.close()


def test_a_catalog_that_cannot_be_pruned_now_is_used_all_the_same(
    sqlite_user: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise Unavailable("catalog: it rains")

    monkeypatch.setattr(sqlite_user.catalog._database, "reading", refuse)
    pruned(sqlite_user, 1)
    assert "isn't pruned now: catalog: it rains" in caplog.text


def test_one_look_when_there_is_nothing_to_do(
    sqlite_user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_user.create("a")
    for kind in ("write", "write_relaxed"):
        monkeypatch.setattr(sqlite_user.catalog._database, kind, None)
    pruned(sqlite_user, 1_000)


# Facts


def test_a_name_that_comes_and_goes_leaves_one_fact(user: User, url: str) -> None:
    for at in range(4):
        location = "file:///x" if at == 0 else f"file:///x-{at:08x}"
        named = NewTable(id=f"t{at}", database="default", name="x", location=location, managed=True)
        user.ratify(version(named.id, 0), names=(named,))
        user.ratify(names=(DroppedTable(id=f"t{at}"),))
        user.catalog.ledger.record_publication({f"t{at}": VersionRange(0, 0)})
        assert user.catalog.ledger.note_clearing(f"t{at}")
        user.catalog.ledger.forget(f"t{at}")
        assert user.catalog.is_cleared(location)
    facts = [str(row[0]) for row in selected(url, "SELECT name FROM txlake_facts")]
    assert sum(name.startswith("cleared:") for name in facts) == 1
    assert not user.catalog.is_cleared("file:///y")
    assert not user.catalog.is_cleared("file:///x-0")


@pytest.mark.parametrize("keeps_files", [False, True])
def test_what_a_clone_shared_goes_with_its_folder(user: User, url: str, keeps_files: bool) -> None:
    user.create("0", "a")
    user.catalog.share("file:///a", ["file:///source"])
    user.ratify(names=(DroppedTable(id="0"),))
    user.ratify(names=(DroppedTable(id="a", keeps_files=keeps_files),))
    user.catalog.ledger.record_publication({"a": VersionRange(0, 0)})
    user.catalog.ledger.forget("a")
    assert bool(user.catalog.shared_with("file:///a")) is keeps_files


def test_a_table_that_is_there_shares_on(user: User) -> None:
    user.create("a")
    user.catalog.share("file:///a", ["file:///source"])
    with write_transaction(user.catalog._database) as connection:
        place_facts.forget_shared(connection, "a")
    assert user.catalog.shared_with("file:///a") == ("file:///source",)
