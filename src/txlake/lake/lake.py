"""`connect`, the lake, its sessions and transactions: what users hold.

Owns the public methods and their arguments; statements are built here or parsed from SQL, and
carried out by `session`.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, TypeVar, overload

from txlake.catalog import DEFAULT_DATABASE, AdmissionOutdated
from txlake.catalog.branch_rows import MAIN_NAME
from txlake.catalog.unity import is_unity
from txlake.commands import HANDLERS
from txlake.conflict.evidence import is_futile
from txlake.conflict.levels import parse_level
from txlake.errors import Conflict, InvalidRequest
from txlake.lake.connecting import (
    catalog_at,
    session_on,
    set_aside_default_catalog,
    unity_session_on,
)
from txlake.lake.statements import Statements
from txlake.lake.streams import Streams
from txlake.lake.tables.session_lookup import register_lake
from txlake.maintenance.arguments import budget_of, duration_ms
from txlake.maintenance.maintainer import Maintainer
from txlake.maintenance.schedule import Maintenance
from txlake.session.catalog_access import refuse_lost
from txlake.session.engine import Engine
from txlake.session.instants import changes_of
from txlake.session.membership.attachment import attach, detach
from txlake.session.membership.moving import move_catalog
from txlake.session.membership.recovery import Recovered, recover
from txlake.session.session import Session
from txlake.session.transaction import Transaction as SessionTransaction
from txlake.session.views.lake_views import maintenance_rows
from txlake.session.views.notebook import card, card_or_error
from txlake.settings import Settings
from txlake.sql import parse
from txlake.sql.statements import CreateBranch, LakeInstant, ShowBranches
from txlake.sql.statements.branches import branch_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from txlake.lake.branches import Branch

Value = TypeVar("Value")
logger = logging.getLogger(__name__)


def connect(
    location: str | None = None,
    *,
    catalog: str | None = None,
    token: str | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    isolation: str | None = None,
    settings: Settings | None = None,
) -> Lake:
    """Open a lake, creating it on first use; or a catalog of a Unity Catalog server.

    Args:
        location: the warehouse: a folder or a URL (file, s3, gs, az, abfss, hdfs, memory); None for
            a Unity Catalog, which decides its tables' places.
        catalog: where the names, locks and commits are kept: SQLAlchemy's URL of a SQLite or
            PostgreSQL database, the URL of a folder in a store, or "warehouse" for the warehouse's
            own store. By default SQLite inside a local warehouse, else "warehouse". For a Unity
            Catalog the address of its API, `uc+https://host/api/2.1/unity-catalog`, with
            `?catalog=name` if it has several.
        token: of a Unity Catalog, as its `Authorization: Bearer` header takes it.
        spark: the session that does the data work; the active one, or a new local one, by default.
        storage_options: credentials and the like, as obstore names them.
        isolation: the level of transactions that request none: "serializable",
            "write_serializable" or "snapshot".
        settings: limits, retention times and the like.

    Raises InvalidRequest for an unusable location or option, and for a warehouse of another
    catalog; CorruptTable if the warehouse's marker can't be read; Unavailable if the store or the
    catalog can't be reached; OutcomeUnknown if the store doesn't say whether it wrote the marker. A
    lake whose catalog has to be recovered is opened; its statements raise until `Lake.recover`.
    """
    session = open_session(
        location,
        make_spark=lambda: spark or local_spark(),
        catalog=catalog,
        token=token,
        storage_options=storage_options,
        isolation=isolation,
        settings=settings,
    )
    if spark is not None:
        _ = session.spark  # its settings count from the first statement
    return Lake(session)


def open_session(
    location: str | None,
    *,
    make_spark: Callable[[], SparkSession],
    catalog: str | None = None,
    token: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    isolation: str | None = None,
    settings: Settings | None = None,
) -> Session:
    """Return a lake's default session, opened as by `connect`; Spark starts when first needed.

    Raises as `connect`.
    """
    if catalog is not None and is_unity(catalog):
        if location is not None:
            raise InvalidRequest(
                "a Unity Catalog says where its tables are: leave out the location, found "
                f"{location!r}"
            )
        return unity_session_on(
            catalog,
            handlers=HANDLERS,
            make_spark=make_spark,
            token=token,
            storage_options=storage_options,
            isolation=isolation,
            settings=settings,
        )
    if token is not None:
        raise InvalidRequest(
            "token is a Unity Catalog's, which catalog='uc+https://...' names; a lake's catalog "
            "has its password in its URL"
        )
    if location is None:
        raise InvalidRequest("location: expected the lake's folder or URL, found none")
    session = session_on(
        location,
        handlers=HANDLERS,
        make_spark=make_spark,
        catalog=catalog,
        storage_options=storage_options,
        isolation=isolation,
        settings=settings,
    )
    register_lake(session)
    return session


def local_spark(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the active Spark session, or else a new one with these settings and txlake's own.

    Settings don't change a session that is active already.
    """
    from pyspark.sql import SparkSession

    from txlake.spark.log_levels import silence_task_errors
    from txlake.spark.spark_sessions import context_class

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder = SparkSession.builder.appName("txlake").config("spark.ui.showConsoleProgress", "false")
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    context = context_class()
    is_ours = context is None or context._active_spark_context is None
    # Without it PySpark's workers are whatever `python3` the PATH has.
    spark = builder.config("spark.pyspark.python", sys.executable).getOrCreate()
    if is_ours:
        silence_task_errors(spark)
    return spark


def lake_place(engine: Engine) -> str:
    """Return a text that says where a lake is, without credentials."""
    return "in another catalog" if engine.warehouse is None else f"at {engine.warehouse.url}"


class Transaction(Statements):
    """A transaction of several statements, which take effect together or not at all.

    It isn't joined to the session's own SQL transaction.

    Attributes:
        id: a UUID.
        state: "active", "committed", "rolled back", "failed" or "unknown".
        sequence: the instant that it reads.
    """

    def __init__(self, session: Session, held: SessionTransaction) -> None:
        self._session = session
        self._own = held

    def __repr__(self) -> str:
        return f"<Transaction {self.id}: {self.state}>"

    def _repr_html_(self) -> str:
        """Return HTML with the transaction's state and the tables that it changes."""
        own = self._own
        level = None if own.level is None else own.level.value
        facts = [("state", self.state), ("isolation", level), ("instant", self.sequence)]
        changed = [(name,) for name in own.changed_names()]
        return card(f"Transaction {self.id}", facts, ("changed",), changed)

    def _own_transaction(self) -> SessionTransaction:
        return self._own

    @property
    def id(self) -> str:
        """The transaction's UUID."""
        return self._own.id

    @property
    def sequence(self) -> int | None:
        """The instant that the transaction reads; None until it uses a table of the lake.

        Instants are numbers of the lake: each committed transaction makes the next. Path tables
        have none.
        """
        return self._own.sequence

    @property
    def state(self) -> str:
        """The state: "active", "committed", "rolled back", "failed" or "unknown"."""
        return self._own.state.value

    def commit(self) -> None:
        """Make the changes visible, all or none.

        Raises:
            Conflict: a concurrent commit conflicts; the transaction is rolled back.
            Unavailable: the store or catalog can't be reached, or another session ended the
                transaction; it is rolled back.
            OutcomeUnknown: it may be committed.
            CorruptTable: it is committed but can't be published, or it may not stand; the message
                says which.
            InvalidRequest: it had ended, or one of its statements failed.
        """
        self._own.commit()

    def rollback(self) -> None:
        """Undo the changes, and end the transaction. Do nothing if it has ended."""
        self._own.rollback()

    def savepoint(self, name: str) -> None:
        """Set a savepoint; a name that is used again hides the earlier savepoint.

        Raises InvalidRequest when the transaction has ended or failed.
        """
        self._own.savepoint(name)

    def rollback_to(self, name: str) -> None:
        """Undo the changes made since a savepoint, which stays.

        Raises InvalidRequest when there is no such savepoint, or the transaction has ended or
        failed.
        """
        self._own.rollback_to(name)


class LakeSession(Streams):
    """A session: runs statements one after the other, and has its own current SQL transaction.

    Any number of sessions may work concurrently; each is used by one thread at a time.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._blocks: dict[int, list[Transaction]] = {}
        self._has_warned = False

    def __repr__(self) -> str:
        session, kind = self._session, type(self).__name__
        return f"<{kind} {lake_place(session.engine)}, database {session.database}>"

    def _repr_html_(self) -> str:
        return card_or_error(repr(self), self._html)

    def _html(self) -> str:
        """Return HTML with the session's settings and the lake's tables. Raises TxlakeError."""
        session = self._session
        session.engine.require_open()
        tables = [
            (entry.database, entry.name, "" if entry.head is None else entry.head)
            for database in session.engine.catalog.databases()
            for entry in session.engine.catalog.tables(database.name)
        ]
        current = session.current
        facts = [
            ("database", session.database),
            ("isolation", None if session.level is None else session.level.value),
            ("transaction", None if current is None else f"{current.id} ({current.state.value})"),
            ("tables", f"{len(tables):,}"),
        ]
        title = f"{type(self).__name__} {lake_place(session.engine)}"
        return card(title, facts, ("database", "table", "version"), tables)

    def _warn_beside(self, method: str) -> None:
        """Warn, once, of a call of `method` inside a `with transaction()` block of this thread."""
        blocks = self._blocks.get(threading.get_ident(), ())
        if self._has_warned or not any(tx.state == "active" for tx in blocks):
            return
        self._has_warned = True
        warnings.warn(
            f"lake.{method}() inside `with lake.transaction()` is no part of that transaction: it "
            f"reads and commits by itself, and isn't rolled back with it; use tx.{method}(), or "
            "another session (lake.session()) where that is meant",
            stacklevel=3,
        )

    @contextmanager
    def transaction(
        self, isolation: str | None = None, read_only: bool = False
    ) -> Iterator[Transaction]:
        """Begin a transaction for a `with` block, which commits it; an exception rolls it back.

        `isolation`: by default the session's level. With `read_only`, statements that write raise
        InvalidRequest. Only the transaction's own methods are part of it. The first call of one of
        the session's methods inside the block, in its thread, warns; it fails with `Deadlock` at
        once if it has to wait for a lock of the transaction.

        Raises as `begin`, and at the block's end as `Transaction.commit`.
        """
        held = self.begin(isolation, read_only)
        held._own_transaction().registration.set_ending_thread()
        thread = threading.get_ident()
        blocks = self._blocks.setdefault(thread, [])
        blocks.append(held)
        try:
            yield held
        except BaseException:
            held.rollback()
            raise
        finally:
            blocks.remove(held)
            if not blocks:
                del self._blocks[thread]
        if held.state == "active" or held.state == "failed":
            held.commit()

    def begin(self, isolation: str | None = None, read_only: bool = False) -> Transaction:
        """Begin a transaction that isn't joined to the session's own SQL transaction.

        `isolation`: by default the session's level. With `read_only`, statements that write raise
        InvalidRequest.

        Raises InvalidRequest for an unknown level, and when the session or the lake is closed;
        InvalidRequest or CorruptTable for a lake that has to be recovered first; Unavailable when
        the catalog can't be reached.
        """
        level = None if isolation is None else parse_level(isolation)
        return Transaction(self._session, self._session.begin(level=level, read_only=read_only))

    def run(
        self,
        work: Callable[[Transaction], Value],
        isolation: str | None = None,
        attempts: int = 5,
    ) -> Value:
        """Run `work(tx)` in a transaction and commit it; repeat both after a conflict, and if
        another host changed a table's definition, or ran VACUUM, before it knew of the transaction.

        Waits between attempts grow and are jittered. Returns what `work` returned. `work` has to be
        repeatable: its effects outside the transaction aren't undone.

        Raises the Conflict of the last attempt, or one that every attempt would meet;
        InvalidRequest for fewer than one attempt; what `work` raises, and as `transaction`.
        """
        if attempts < 1:
            raise InvalidRequest(f"attempts={attempts}: expected at least 1")
        system = self._session.engine.system
        retry = self._session.engine.settings.retry
        for attempt in range(1, attempts + 1):
            try:
                with self.transaction(isolation) as tx:
                    return work(tx)
            except (Conflict, AdmissionOutdated) as lost:
                # Even where the same changes can't be committed again (another one created the
                # table), the work looks anew and may do something else.
                if attempt == attempts or (isinstance(lost, Conflict) and is_futile(lost)):
                    raise
                wait_ms = min(retry.wait_ms_max, retry.wait_ms_min * 2**attempt)
                logger.info(
                    "attempt %d of %d lost (%s); next in %d ms at most",
                    attempt,
                    attempts,
                    type(lost).__name__,
                    wait_ms,
                )
                system.wait_ms(wait_ms * (0.5 + system.random() / 2))
        raise AssertionError("unreachable")

    def session(self) -> LakeSession:
        """Open another session on the same lake; its current database is `default`.

        It has this session's isolation level and branch, and none of its transactions.
        """
        made = self._session.another()
        made.database = DEFAULT_DATABASE
        return LakeSession(made)

    def _session_on(self, engine: Engine) -> LakeSession:
        return LakeSession(Session(engine, HANDLERS, level=self._session.level))

    def conflicts(self) -> DataFrame:
        """Return the conflicts of the lake's sessions, oldest first: the view `txlake.conflicts`.

        A row has the facts of `Conflict.evidence`, with the time, the transaction's id, the error's
        name and its message. The last 1,000 are kept. Raises as `locks`.
        """
        return self._view("txlake.conflicts")

    def explain_conflicts(self, sql: str) -> DataFrame:
        """Return what a statement would read and change, and which writers would conflict with it.

        As `EXPLAIN CONFLICTS`: columns `part`, `subject`, `answer` (an error's name, or
        that both commit) and `detail`. The statement isn't run.

        Raises InvalidRequest unless it is one statement, of a kind that EXPLAIN CONFLICTS takes.
        """
        with self._failing_on_error():
            rules = self._session.engine.plane.text_rules
            statements = parse(f"EXPLAIN CONFLICTS {sql}", rules=rules)
            if len(statements) != 1:
                raise InvalidRequest(f"expected one statement to explain, found {len(statements)}")
        return self._run(statements[0])

    def transactions(self) -> DataFrame:
        """Return the open transactions of all processes: the view `txlake.transactions`.

        Raises as `locks`.
        """
        return self._view("txlake.transactions")

    def locks(self) -> DataFrame:
        """Return the granted and requested locks of all processes: `sys.dm_tran_locks`.

        Raises InvalidRequest when the session or the lake is closed, InvalidRequest or CorruptTable
        for a lake that has to be recovered first, Unavailable when the catalog can't be reached.
        """
        return self._view("sys.dm_tran_locks")

    def view(self, name: str) -> pa.Table:
        """Return the rows of one of the lake's own views, such as `sys.dm_tran_locks`.

        Read committed, without Spark. The name's letter case doesn't matter; Redshift's views may
        also be named with `pg_catalog.`. Times are in UTC.

        Raises InvalidRequest for any other name (views made by CREATE VIEW are read by `read` and
        `sql`), and as `locks`.
        """
        if not isinstance(name, str):
            raise InvalidRequest(f"expected a view's name, found {name!r:.80}")
        return self._session.catalog_view(name).table()

    def _view(self, name: str) -> DataFrame:
        rows = self._session.catalog_view(name)
        return self._session.engine.plane.frame(rows.schema, rows.rows)

    def attach(self, location: str, name: str | None = None) -> str:
        """Make an existing Delta table a table of the lake, and return its name.

        Nothing is rewritten. From then on its commits go through the lake's catalog; other engines
        can read the table but not write it. `name`: `table` or `database.table`; the folder's name
        by default. If this is interrupted, do it again.

        Raises InvalidRequest when there is no table, the name is taken or the table is another
        lake's; UnsupportedFeature for a table that txlake doesn't write; a Conflict when another
        writer changed its settings meanwhile; LockTimeout or Deadlock for the name's lock.
        """
        return attach(self._session, location, name)

    def detach(self, name: str) -> str:
        """Make a table of the lake a path table again; return its URL.

        Its name is removed, and any engine may write it.

        Raises InvalidRequest when there is no such table, CorruptTable when its log is ahead of the
        catalog, LockTimeout or Deadlock for its lock, and as `Transaction.commit`.
        """
        return detach(self._session, name)

    def changes_of(self, sequence: int) -> dict[str, DataFrame]:
        """Return the rows that one transaction changed, by the name of the table.

        `sequence` is the instant that the transaction made. Tables without a change data feed
        (`lake.changes`) and tables dropped since are left out. `txlake.commits` shows which
        versions belong to which instant.

        Raises InvalidRequest for an instant that doesn't exist, and Unavailable for one whose
        versions the catalog may no longer have (`Settings.commits_kept`).
        """
        self._warn_beside("changes_of")
        return changes_of(self._session, sequence)

    def close(self) -> None:
        """End the session; its open transactions are rolled back."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_branch(
    name: object, *, create: bool, at: object, origin: object, retention_ms: object
) -> None:
    """Raise InvalidRequest for arguments of `Lake.branch` that aren't what they have to be."""
    if not isinstance(name, str):
        raise InvalidRequest(f"branch: expected a branch's name, found {name!r}")
    if name.lower() == MAIN_NAME:
        raise InvalidRequest(
            "'main' is the lake itself, no branch: use the lake, or lake.session()"
        )
    if origin is not None and not isinstance(origin, str):
        raise InvalidRequest(f"branch: origin: expected a branch's name, found {origin!r}")
    for what, number, least in (("at", at, 0), ("retention_ms", retention_ms, 1)):
        if number is not None and (type(number) is not int or number < least):
            raise InvalidRequest(
                f"branch: {what}: expected a whole number of {least} or more, found {number!r}"
            )
    if not create and not (at is None and origin is None and retention_ms is None):
        raise InvalidRequest(
            "branch: at, origin and retention_ms are of a branch that is created: give create=True"
        )


class Lake(LakeSession):
    """A lake: databases of named tables in a warehouse, and path tables.

    The lake itself is the default session.
    """

    def branch(
        self,
        name: str,
        *,
        create: bool = False,
        at: int | None = None,
        origin: str | None = None,
        retention_ms: int | None = None,
    ) -> Branch:
        """Return a session on a branch, which is created if `create` is set and it doesn't exist.

        Args:
            name: the branch's.
            create: whether it is created.
            at: the instant of the lake that it begins at; None for the newest.
            origin: the branch that it is made from; None for the lake's own tables.
            retention_ms: how long it is kept; None: until it is dropped or published.

        Raises InvalidRequest if there is no such branch, or it can't be created, with `at` or
        `origin` if it exists, and for `main`.
        """
        from txlake.lake.branches import Branch

        _check_branch(name, create=create, at=at, origin=origin, retention_ms=retention_ms)

        session = Session(self._session.engine.main, HANDLERS, level=self._session.level)
        if create:
            instant = None if at is None else LakeInstant(sequence=at)
            made = CreateBranch(
                name=branch_name(name),
                origin=None if origin is None else branch_name(origin),
                at=instant,
                retain_ms=retention_ms,
                if_not_exists=at is None and origin is None,
            )
            session.perform(made)
        session.use_branch(branch_name(name))
        return Branch(session, name)

    def branches(self) -> DataFrame:
        """Return the branches: `name`, `parent`, the instant `sequence` that each began at,
        `user_name`, `created_time` and `kept_until`. Raises as `locks`.
        """
        return self._run(ShowBranches())

    def recover(self, *locations: str) -> Recovered:
        """Rebuild the catalog from the tables' logs, after it was lost or restored from a backup.

        Everything published stays. The warehouse is searched for tables; `locations` are tables of
        the lake that lie elsewhere. In the result, `tables` are the tables that the catalog has
        again, `done` the other changes, `unknown` what the logs don't say. Other processes have to
        connect again, unless there was nothing to do.

        Raises InvalidRequest when the catalog is another lake's, CorruptTable where the warehouse's
        marker can't be read, Unavailable when the catalog or a store can't be reached or another
        process recovers it at the same time.
        """
        return recover(self._session, locations)

    def move_catalog(self, to: str) -> None:
        """Move the lake's catalog to another place, while nobody else works, and close the lake.

        `to`: as `catalog=` of `connect`: the URL of an empty SQLite or PostgreSQL database, or of
        an empty folder in a store, or "warehouse". Connect again with it; other processes can't go
        on with the old catalog. If this is interrupted, connect with the new catalog, and if that
        is empty, with the old one, and let `recover` take it up again.

        Raises InvalidRequest while another session uses the lake or a transaction is open, and for
        a place that can't be or has tables; Unavailable if one of the catalogs or the warehouse
        can't be reached.
        """
        target = catalog_at(self._session, to)
        try:
            move_catalog(self._session, target)
        finally:
            target.close()
        self.close()
        if to == "warehouse":
            set_aside_default_catalog(self._session)

    @overload
    def maintain(
        self,
        *,
        once: bool = ...,
        every: None = ...,
        budget: str | float | None = ...,
        budget_bytes: str | int | None = ...,
        dry_run: bool = ...,
    ) -> pa.Table: ...

    @overload
    def maintain(
        self,
        *,
        once: bool = ...,
        every: str | float,
        budget: str | float | None = ...,
        budget_bytes: str | int | None = ...,
        dry_run: bool = ...,
    ) -> Maintenance: ...

    def maintain(
        self,
        *,
        once: bool = False,
        every: str | float | None = None,
        budget: str | float | None = None,
        budget_bytes: str | int | None = None,
        dry_run: bool = False,
    ) -> pa.Table | Maintenance:
        """Do what the lake's tables need: pack small files, VACUUM, checkpoints and the like.

        By default one round is done, and what it did is returned, as rows of `txlake.maintenance`.
        No writer is aborted, and nobody waits for maintenance: what others work on comes later. Any
        number of processes may do it at once. Tables and databases set it up by their properties
        `txlake.maintenance.*`. Source: docs/maintenance.md.

        Args:
            once: one round, which is the default without `every`.
            every: a round each "10m", or as many seconds, in a thread of this process. What is
                returned ends that by `stop()`, and is a context manager.
            budget: after so long, "30m" or seconds, a round begins nothing new.
            budget_bytes: how many bytes of data a round reads and writes, "50gb" or a number.
            dry_run: nothing is done; the rows say what is due and why, in order.

        Raises InvalidRequest for an argument that isn't one of these, on another system's catalog,
        and as `locks`.
        """
        if every is not None and (once or dry_run):
            raise InvalidRequest("maintain: give every=, or else once= or dry_run=")
        engine = self._session.engine.main
        engine.require_open()
        refuse_lost(engine)
        maintainer = Maintainer(
            engine, lambda: Session(engine, HANDLERS), budget=budget_of(budget, budget_bytes)
        )
        if every is not None:
            return Maintenance(engine, maintainer, duration_ms(every, "every"))
        return maintenance_rows(maintainer.plan() if dry_run else maintainer.run()).table()

    def close(self) -> None:
        """End the default session and release the catalog; Spark keeps running."""
        self._session.close()
        self._session.engine.close()
