"""A lake in a bucket whose store refuses, is slow, lies about the time or loses objects.

Each statement ends in one of txlake's errors that says what to do, or has happened: no commit that
was reported is missing, and none that was refused is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from io import BytesIO
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import txlake
from tests.lake.rows import query
from tests.storage.conftest import s3_client, s3_options  # noqa: F401
from tests.storage.proxy import Answer, Fault, Plan, Proxy, Request, by_chance, proxying
from txlake.catalog.replicated import log as log_module
from txlake.errors import CorruptTable, InvalidRequest, OutcomeUnknown, TxlakeError, Unavailable
from txlake.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

_numbers = count()


def error_of(status: int, code: str) -> Answer:
    """S3's answer to a request that it refuses."""
    body = f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode()
    return Answer(status, {"Content-Type": "application/xml"}, body)


EXPIRED = error_of(400, "ExpiredToken")
UNKNOWN_KEY = error_of(403, "InvalidAccessKeyId")
SLOW_DOWN = error_of(503, "SlowDown")
DENIED = error_of(403, "AccessDenied")


@dataclass
class Faults:
    """A plan: what is done to requests, from one of them on, for some of them.

    Attributes:
        what: the fault, or the answer in place of the store's; None lets all pass.
        begin: how many requests pass before.
        left: how many requests it is still done to.
        count: how many requests there were.
    """

    what: Fault | Answer | None = None
    begin: int = 0
    left: int = 10**9
    count: int = field(default=0)

    def __call__(self, request: Request) -> Fault | Answer | None:
        self.count += 1
        if self.what is None or self.count <= self.begin or self.left <= 0:
            return None
        self.left -= 1
        return self.what

    def start(self, what: Fault | Answer | None, begin: int = 0, left: int = 10**9) -> None:
        self.what, self.begin, self.left, self.count = what, begin, left, 0


@dataclass(frozen=True)
class Bucket:
    """A lake's place in a bucket.

    Attributes:
        url: the warehouse.
        direct: the storage options to the store itself.
        spark: the session of the test's lakes.
    """

    url: str
    direct: dict[str, str]
    spark: SparkSession

    def connect(self, **options: Any) -> txlake.Lake:
        """Open the lake, without faults."""
        return txlake.connect(self.url, spark=self.spark, storage_options=self.direct, **options)

    def through(self, proxy: Proxy, **options: str) -> txlake.Lake:
        """Open the lake by way of a proxy."""
        through = {**self.direct, "AWS_ENDPOINT_URL": proxy.address, **options}
        return txlake.connect(self.url, spark=self.spark, storage_options=through)

    @contextmanager
    def behind(self, plan: Plan = lambda _: None, kind: type[Proxy] = Proxy) -> Iterator[Proxy]:
        """Run a proxy before the store."""
        with proxying(kind(self.direct["AWS_ENDPOINT_URL"], plan)) as proxy:
            yield proxy


@pytest.fixture
def bucket(s3_options: dict[str, str], spark: SparkSession) -> Bucket:  # noqa: F811
    """A place with the tables a and b."""
    made = Bucket(f"s3://lake/bad{next(_numbers)}", s3_options, spark)
    with made.connect() as lake:
        for table in ("a", "b"):
            lake.sql(f"CREATE TABLE {table} (id BIGINT)")
    return made


@pytest.fixture
def objects(s3_options: dict[str, str]) -> Iterator[Any]:  # noqa: F811
    """boto3's client of the store."""
    with s3_client(s3_options) as client:
        yield client


def ids(bucket: Bucket, table: str) -> list[int]:
    """The rows of a published table without deletion vectors."""
    url = f"{bucket.url}/{table}"
    files = txlake.Log(url, bucket.direct).snapshot().files()["path"].to_pylist()
    store = open_store(url, bucket.direct)
    parts = [parquet.read_table(BytesIO(store.get(path)))["id"].to_pylist() for path in files]
    return sorted(number for part in parts for number in part)


def insert(lake: txlake.Lake, number: int) -> None:
    lake.sql(f"INSERT INTO a VALUES ({number})")


def open_transaction(session: txlake.LakeSession) -> None:
    """Begin a transaction that others see, so that its process writes a heartbeat."""
    session.sql("BEGIN; INSERT INTO a VALUES (9)")
    assert session.view("sys.dm_tran_locks").num_rows


def insert_into_both(lake: txlake.Lake, number: int) -> None:
    with lake.session() as session:
        session.sql(f"BEGIN; INSERT INTO a VALUES ({number}); INSERT INTO b VALUES ({number})")
        session.sql("COMMIT")


def create(lake: txlake.Lake, number: int) -> None:
    lake.sql(f"CREATE TABLE made{number} (id BIGINT)")


WORK: dict[str, Callable[[txlake.Lake, int], None]] = {
    "create": create,
    "insert": insert,
    "two tables": insert_into_both,
}


def is_done(lake: txlake.Lake, work: str, number: int) -> bool:
    """Whether the work's changes are there: all of them, or none."""
    if work == "create":
        return f"made{number}" in {row.tableName for row in lake.sql("SHOW TABLES").collect()}
    found = {
        (number,) in query(lake, f"SELECT id FROM {table}")
        for table in ("ab" if work == "two tables" else "a")
    }
    assert len(found) == 1, "half of a transaction"
    return found.pop()


FAULTS: dict[str, tuple[Fault | Answer, int, str]] = {
    "expired": (EXPIRED, 10**9, "expired"),
    "done-cut": (Fault.DONE_AND_CUT, 1, ""),
    "unknown key": (UNKNOWN_KEY, 10**9, "credentials in storage_options"),
    "away": (Fault.CUT, 10**9, "connection was closed without an answer"),
    "cut": (Fault.CUT, 1, ""),
    "done-503": (Fault.DONE_AND_503, 1, ""),
    "silent": (Fault.SILENT, 1, ""),
    "done-silent": (Fault.DONE_AND_SILENT, 1, ""),
}
CELLS = [("insert", "expired"), ("two tables", "done-cut"), ("insert", "done-cut")]
CELLS += [("create", fault) for fault in ("expired", "done-cut")]
CELLS += [("two tables", fault) for fault in FAULTS if fault != "done-cut"]


@pytest.mark.broad(keep=2)
@pytest.mark.parametrize(("work", "fault"), CELLS)
def test_a_fault_at_each_request_of_a_statement(
    bucket: Bucket, work: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From each request on, to the end or once; afterwards the same lake goes on.

    Whether old entries of the catalog's log are still there is asked at each request, which is
    otherwise rare: what fails after a commit doesn't make it a refused one.
    """
    monkeypatch.setattr(log_module, "_CHECK_MS", 0)
    what, left, said = FAULTS[fault]
    faults = Faults()
    told: list[int] = []
    retries = "0" if left > 1 else "3"
    timeout = "0.5s" if "silent" in fault else "30s"
    with (
        bucket.behind(faults) as proxy,
        bucket.connect() as other,
        bucket.through(proxy, max_retries=retries, timeout=timeout) as lake,
    ):
        WORK[work](lake, 0)
        for begin in count():
            faults.start(what, begin, left)
            error = None
            try:
                WORK[work](lake, begin + 1)
            except TxlakeError as raised:
                error = raised
            is_over = faults.count <= begin
            faults.start(None)
            done = is_done(other, work, begin + 1)
            if error is None:
                assert done
                told.append(begin + 1)
            elif not isinstance(error, OutcomeUnknown):
                assert not done
            if error is not None:
                assert left > 1
                assert said in str(error)
            if is_over:
                break
        assert len(told) >= (1 if left > 1 else begin)
        assert other.recover().done == ()
    if work != "create":
        assert set(told) <= set(ids(bucket, "a"))


@pytest.mark.parametrize(("what", "said"), [(EXPIRED, "have expired"), (SLOW_DOWN, "limits the")])
def test_a_connection_at_each_request(bucket: Bucket, what: Answer, said: str) -> None:
    faults = Faults()
    with bucket.behind(faults) as proxy:
        for begin in count():
            faults.start(what, begin)
            try:
                lake = bucket.through(proxy, max_retries="0")
            except TxlakeError as error:
                assert said in str(error)  # noqa: PT017 - or none is raised
                continue
            is_over = faults.count <= begin  # else what was read ahead wasn't needed
            faults.start(None)
            with lake:
                insert(lake, begin)
            if is_over:
                break
    assert begin in ids(bucket, "a")


@pytest.mark.parametrize("what", [EXPIRED, SLOW_DOWN, DENIED, Fault.CUT])
def test_a_lake_is_closed_whatever_the_store_says(
    bucket: Bucket, what: Fault | Answer, caplog: pytest.LogCaptureFixture
) -> None:
    """The sessions of such a process end with their leases."""
    faults = Faults()
    with bucket.behind(faults) as proxy:
        lake = bucket.through(proxy, max_retries="0")
        insert(lake, 1)
        open_transaction(lake.session())
        faults.start(what)
        lake.close()
    assert "heartbeat" in caplog.text
    assert ids(bucket, "a") == [1]
    with bucket.connect() as other:
        insert(other, 2)
    assert ids(bucket, "a") == [1, 2]


def test_a_store_that_limits_the_rate_is_asked_again(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    """A fifth of the requests is refused: none of the statements is."""
    chance = by_chance(5, 0.2, (Fault.ERROR_503,))
    with (
        bucket.behind() as proxy,
        bucket.through(proxy, max_retries="6") as lake,
        caplog.at_level("INFO"),
    ):
        insert_into_both(lake, 0)
        proxy.plan = chance
        for number in range(1, 9):
            insert_into_both(lake, number)
        proxy.plan = lambda _: None
        insert_into_both(lake, 9)  # publishes what may be committed and not yet published
    assert proxy.met[Fault.ERROR_503] > 10
    assert re.search(r"a put was not answered clearly: .*503", caplog.text)
    assert ids(bucket, "a") == ids(bucket, "b") == list(range(10))


def test_a_store_that_limits_all_requests_is_given_up(bucket: Bucket) -> None:
    faults = Faults()
    with bucket.behind(faults) as proxy, bucket.through(proxy, max_retries="1") as lake:
        insert(lake, 1)
        faults.start(SLOW_DOWN)
        with pytest.raises(Unavailable, match="limits the rate of requests: wait, then try again"):
            insert(lake, 2)
        assert faults.count < 30
        faults.start(None)
        insert(lake, 3)
    assert ids(bucket, "a") == [1, 3]


def _deletes_each_denied(request: Request) -> Answer | None:
    """S3's answer to a request to delete many that a bucket policy denies: each by itself."""
    if request.method != "POST" or "delete" not in request.target:
        return None
    errors = b"".join(
        b"<Error><Key>" + key + b"</Key><Code>AccessDenied</Code><Message>No</Message></Error>"
        for key in re.findall(rb"<Key>(.*?)</Key>", request.body)
    )
    return Answer(200, {}, b"<DeleteResult>" + errors + b"</DeleteResult>")


def _deletes_denied(request: Request) -> Answer | None:
    return DENIED if request.method == "POST" and "delete" in request.target else None


@pytest.mark.parametrize("plan", [_deletes_denied, _deletes_each_denied])
def test_a_policy_that_forbids_deletes(bucket: Bucket, plan: Plan) -> None:
    """It makes VACUUM fail, and nothing else."""
    with bucket.behind(plan) as proxy, bucket.through(proxy) as lake:
        lake.sql("CREATE TABLE c (id BIGINT)")
        insert(lake, 1)
        lake.sql("INSERT OVERWRITE a VALUES (2)")
        lake.sql(
            "ALTER TABLE a SET TBLPROPERTIES "
            "('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
        )
        with pytest.raises(InvalidRequest, match=r"may delete objects \(s3:DeleteObject on S3\)"):
            lake.sql("VACUUM a RETAIN 0 HOURS")
        lake.sql("DROP TABLE c")
        assert query(lake, "SELECT * FROM a") == [(2,)]
        assert lake.recover().done == ()


class _Clock(Proxy):
    """A store whose clock is some hours off."""

    off = timedelta()

    def answer(self, request: Request) -> Answer:
        answer = super().answer(request)
        headers = {
            name: format_datetime(parsedate_to_datetime(value) + self.off, usegmt=True)
            if name.lower() in {"date", "last-modified"}
            else value
            for name, value in answer.headers.items()
        }
        body = re.sub(rb"(?<=<LastModified>)[^<]+", self._shift, answer.body)
        return Answer(answer.status, headers, body)

    def _shift(self, found: re.Match[bytes]) -> bytes:
        moved = datetime.fromisoformat(found[0].decode()) + self.off
        return moved.strftime("%Y-%m-%dT%H:%M:%S.000Z").encode()


@pytest.mark.parametrize("hours", [7, -7])
def test_a_store_whose_clock_is_hours_off(bucket: Bucket, hours: int) -> None:
    """An open transaction isn't taken for dead, and VACUUM keeps its files."""

    class Off(_Clock):
        off = timedelta(hours=hours)

    with (
        bucket.behind(kind=Off) as proxy,
        bucket.through(proxy) as lake,
        bucket.through(proxy) as other,
        lake.session() as session,
    ):
        lake.sql(
            "ALTER TABLE a SET TBLPROPERTIES "
            "('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
        )
        insert(lake, 0)
        session.sql("BEGIN; INSERT INTO a VALUES (1)")
        assert other.transactions().count() == 1
        other.sql("INSERT INTO a VALUES (2)")
        other.sql("VACUUM a RETAIN 0 HOURS")
        session.sql("COMMIT")
        assert query(other, "SELECT * FROM a") == [(0,), (1,), (2,)]
    assert ids(bucket, "a") == [0, 1, 2]


def test_a_versioned_bucket(bucket: Bucket, objects: Any) -> None:
    """An object that was deleted is gone, whatever versions of it the bucket keeps."""
    status = {"Status": "Enabled"}
    objects.put_bucket_versioning(Bucket="lake", VersioningConfiguration=status)
    try:
        with bucket.connect() as lake:
            for number in range(3):
                insert_into_both(lake, number)
            lake.sql("DROP TABLE b")
            lake.sql("UNDROP TABLE b")
        with bucket.connect() as lake:
            assert query(lake, "SELECT * FROM b") == [(0,), (1,), (2,)]
            assert lake.recover().done == ()
    finally:
        status = {"Status": "Suspended"}
        objects.put_bucket_versioning(Bucket="lake", VersioningConfiguration=status)


class _Overwriting(Proxy):
    """A store that doesn't know If-None-Match."""

    def answer(self, request: Request) -> Answer:
        headers = {k: v for k, v in request.headers.items() if k.lower() != "if-none-match"}
        return super().answer(replace(request, headers=headers))


def test_a_store_without_conditional_puts_is_refused(bucket: Bucket) -> None:
    with bucket.behind(kind=_Overwriting) as proxy:
        new = replace(bucket, url=f"{bucket.url}-new")
        with pytest.raises(InvalidRequest, match=r"unsafe: .*conditional writes.*If-None-Match"):
            new.through(proxy)
        assert list(open_store(new.url, bucket.direct).list("")) == []
        with (
            bucket.through(proxy) as lake,
            pytest.raises(InvalidRequest, match=r"unsafe: .*If-None-Match"),
        ):
            insert(lake, 1)
    assert ids(bucket, "a") == []


# --- lakes in each other's folders ---------------------------------------------------------------


def test_a_lake_within_another_lakes_warehouse(bucket: Bucket) -> None:
    inner = replace(bucket, url=f"{bucket.url}/sub")
    with bucket.connect() as lake, inner.connect() as other:
        other.sql("CREATE TABLE a (id BIGINT)")
        insert(other, 7)
        with pytest.raises(InvalidRequest, match="belongs to another lake"):
            lake.attach(f"{inner.url}/a", "theirs")
        with pytest.raises(InvalidRequest, match="a commit has to go through that catalog"):
            lake.write(pa.table({"id": [8]}), f"{inner.url}/a", "append")
        lake.sql("CREATE TABLE sub (id BIGINT)")  # in the folder of the other's warehouse
        lake.sql("VACUUM sub")
        lake.sql("DROP TABLE sub PURGE")
        assert lake.recover().done == ()
        insert(other, 9)
    assert ids(inner, "a") == [7, 9]
    with pytest.raises(InvalidRequest, match="found a lake's own folder _txlake"):
        replace(bucket, url=f"{bucket.url}/_txlake/catalog").connect()


def test_two_catalogs_of_one_warehouse(bucket: Bucket) -> None:
    with (
        bucket.connect(catalog=f"{bucket.url}-catalog") as other,
        pytest.raises(InvalidRequest, match=r"is new, and .*is the warehouse of lake"),
    ):
        insert(other, 1)
    with bucket.connect() as lake:
        insert(lake, 2)
    assert ids(bucket, "a") == [2]


# --- objects that are gone -----------------------------------------------------------------------


def _delete(bucket: Bucket, *paths: str) -> None:
    store = open_store(bucket.url, bucket.direct)
    for path in paths:
        store.delete([found.path for found in store.list(f"_txlake/catalog/{path}")])


def test_a_lifecycle_rule_that_deletes_the_catalog(bucket: Bucket) -> None:
    with bucket.connect() as lake:
        insert(lake, 1)
    _delete(bucket, "")
    with bucket.connect() as lake:
        with pytest.raises(InvalidRequest, match=r"is new, and .*lake\.recover"):
            insert(lake, 2)
        lake.recover()
        insert(lake, 3)
    assert ids(bucket, "a") == [1, 3]


def test_a_lifecycle_rule_that_deletes_old_entries(bucket: Bucket) -> None:
    """The log doesn't begin anew before what is left of it."""
    with bucket.connect() as lake:
        insert(lake, 1)
    store = open_store(bucket.url, bucket.direct)
    entries = [found.path for found in store.list("_txlake/catalog/log")]
    store.delete(entries[:-2])
    with pytest.raises(CorruptTable, match=r"entries were removed.*lake\.recover"):
        bucket.connect()
    _delete(bucket, "")
    with bucket.connect() as lake:
        lake.recover()
        insert(lake, 2)
    assert ids(bucket, "a") == [1, 2]


def test_a_lifecycle_rule_that_deletes_a_heartbeat(bucket: Bucket) -> None:
    """Its process counts as dead: the open transaction is told to run again."""
    with bucket.connect() as lake, lake.session() as session:
        open_transaction(session)
        _delete(bucket, "heartbeats")
        with bucket.connect() as other:
            assert other.transactions().count() == 0
            insert(other, 2)
        with pytest.raises(Unavailable, match=r"was ended while it was open.*run it again"):
            session.sql("COMMIT")
        insert(lake, 3)
    assert ids(bucket, "a") == [2, 3]
