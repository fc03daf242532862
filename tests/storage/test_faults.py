"""Writers commit through a slow, failing or lying store: nothing is lost, nothing stands twice.

A commit that a writer was told of stands once; one whose failure it was told of doesn't stand; only
after OutcomeUnknown it may or may not.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

import txlake
from tests.lake.log_tables import settings as table_settings
from tests.storage import servers
from tests.storage.conftest import Placed
from tests.storage.proxy import FAILING, LYING, Fault, Plan, Proxy, Request, by_chance, proxying
from txlake.errors import OutcomeUnknown, TxlakeError, Unavailable
from txlake.settings import RetrySettings, Settings
from txlake.storage import open_store

pytestmark = pytest.mark.no_interop("the data files of its commits are names alone")

WRITERS = 3
COMMITS = 8
ATTEMPTS_MAX = 60
ENDPOINTS = ("AWS_ENDPOINT_URL", "azure_endpoint", "webhdfs_endpoint")
QUICK = Settings(retry=RetrySettings(wait_ms_min=1, wait_ms_max=20, queue_ms_max=100))


@dataclass
class Told:
    """What writers were told of the files that they committed."""

    stands: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def _upstream(place: Placed) -> str:
    """The address of the place's server."""
    if place.url.startswith("webhdfs:"):
        return "http" + place.url.removeprefix("webhdfs").split("/test_")[0]
    if place.url.startswith("gs:"):
        key = json.loads(place.options["google_service_account_key"])
        return str(key["gcs_base_url"])
    address = next(place.options[each] for each in ENDPOINTS if each in place.options)
    return address.removesuffix(f"/{servers.AZURE_ACCOUNT}")


def _through(place: Placed, address: str, **more: str) -> dict[str, str]:
    """The place's options, by way of a proxy."""
    if place.url.startswith("webhdfs:"):
        return {**place.options, "webhdfs_endpoint": address, "max_retries": "3", **more}
    if place.url.startswith("gs:"):
        return {**servers.gcs_options_of(address), "max_retries": "3", **more}
    upstream = _upstream(place)
    changed = {name: value.replace(upstream, address) for name, value in place.options.items()}
    return {**changed, "max_retries": "3", **more}


def _append(log: txlake.Log, name: str) -> None:
    add = {"path": name, "size": 1, "dataChange": True, "stats": '{"numRecords":1}'}
    log.start_transaction().commit([{"add": {**add, "partitionValues": {}}}])


def _write(log: txlake.Log, writer: int, told: Told) -> None:
    for attempt in range(ATTEMPTS_MAX):
        name = f"{writer}-{attempt}.parquet"
        try:
            _append(log, name)
        except OutcomeUnknown:
            told.unknown.append(name)
        except TxlakeError:
            told.failed.append(name)
        else:
            told.stands.append(name)
            if sum(each.startswith(f"{writer}-") for each in told.stands) == COMMITS:
                return
    raise AssertionError(f"writer {writer} came to {told.stands} in {ATTEMPTS_MAX} attempts")


def _run(place: Placed, plan: Plan, **options: str) -> tuple[Told, Proxy]:
    """Writers at work through a proxy with this plan; the audit of what they leave."""
    txlake.Log(place.url, place.options).start_transaction().commit([table_settings("id:long")])
    told = Told()
    with proxying(Proxy(_upstream(place), plan)) as proxy:
        through = _through(place, proxy.address, **options)
        logs = [txlake.Log(place.url, through, settings=QUICK) for _ in range(WRITERS)]
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(_write, logs, range(WRITERS), [told] * WRITERS))
    _audit(place, told)
    return told, proxy


def _audit(place: Placed, told: Told) -> None:
    log = txlake.Log(place.url, place.options)
    snapshot = log.snapshot()
    found = Counter[str]()
    for version in range(1, snapshot.version + 1):
        data = open_store(place.url, place.options).get(f"_delta_log/{version:020}.json")
        actions = [json.loads(line) for line in data.splitlines()]
        found.update(each["add"]["path"] for each in actions if "add" in each)
    assert [name for name, count in found.items() if count > 1] == []
    assert [name for name in told.stands if name not in found] == []
    assert [name for name in told.failed if name in found] == []
    assert set(found) <= {*told.stands, *told.unknown}
    assert sorted(snapshot.files().column("path").to_pylist()) == sorted(found)


@pytest.mark.broad(keep=1)
@pytest.mark.parametrize("place", ["s3", "azure", "gcs", "hdfs"], indirect=True)
def test_a_failing_store_loses_nothing(place: Placed) -> None:
    told, proxy = _run(place, by_chance(7, 0.3, FAILING))
    assert len(told.stands) == WRITERS * COMMITS
    assert set(proxy.met) == set(FAILING)


@pytest.mark.broad(keep=1)
@pytest.mark.parametrize("place", ["s3", "azure", "gcs"], indirect=True)
def test_a_lying_store_loses_nothing(place: Placed) -> None:
    told, proxy = _run(place, by_chance(11, 0.3, LYING, of="_delta_log"))
    assert len(told.stands) == WRITERS * COMMITS
    assert set(proxy.met) == set(LYING)


# In HDFS it is the target of a rename.
_COMMIT = re.compile(r"_delta_log/\d{20}\.json($|&)")
# Each fault at the commit itself, every other time.
AT_THE_COMMIT = [
    *((place, each) for place in ("s3", "hdfs") for each in FAILING),
    *((place, each) for place in ("s3", "hdfs") for each in (Fault.SILENT, Fault.DONE_AND_SILENT)),
    *(("s3", each) for each in (Fault.LIES, Fault.LIES_WITHOUT_ETAG)),
]


def _of_commits(request: Request) -> bool:
    """Whether that is what makes a version: a PUT, and a rename in HDFS."""
    return request.method == "PUT" and _COMMIT.search(request.text) is not None


@pytest.mark.broad(keep=8)
@pytest.mark.parametrize(
    ("place", "fault"),
    AT_THE_COMMIT,
    indirect=["place"],
    ids=[f"{place}-{fault.name}" for place, fault in AT_THE_COMMIT],
)
def test_each_fault_of_a_commit(place: Placed, fault: Fault) -> None:
    txlake.Log(place.url, place.options).start_transaction().commit([table_settings("id:long")])
    met: list[Request] = []

    def plan(request: Request) -> Fault | None:
        if not _of_commits(request):
            return None
        met.append(request)
        return fault if len(met) % 2 else None

    timeout = {"webhdfs_timeout": "1"} if place.url.startswith("webhdfs:") else {"timeout": "0.2s"}
    told = Told()
    with proxying(Proxy(_upstream(place), plan)) as proxy:
        # The store was tried before: the faults are for commits.
        options = _through(place, proxy.address, **timeout)
        log = txlake.Log(place.url, options, settings=QUICK)
        for number in range(3):
            name = f"0-{number}.parquet"
            try:
                _append(log, name)
            except Unavailable:
                told.failed.append(name)
            else:
                told.stands.append(name)
        assert proxy.met[fault] > 0
    _audit(place, told)
    assert len(told.stands) >= 2


@pytest.mark.parametrize("place", ["s3", "azure", "gcs", "hdfs"], indirect=True)
def test_an_outcome_that_nobody_can_tell_is_unknown(place: Placed) -> None:
    txlake.Log(place.url, place.options).start_transaction().commit([table_settings("id:long")])
    away = False

    def plan(request: Request) -> Fault | None:
        nonlocal away
        if away:
            return Fault.CUT
        if not _of_commits(request) or f"{1:020}" not in request.text:
            return None
        away = True  # from the commit on
        return Fault.DONE_AND_CUT

    with proxying(Proxy(_upstream(place), plan)) as proxy:
        options = _through(place, proxy.address, max_retries="0")
        log = txlake.Log(place.url, options, settings=QUICK)
        with pytest.raises(OutcomeUnknown, match="look whether version 1 has the txnId"):
            _append(log, "x.parquet")
        away = False
    assert txlake.Log(place.url, place.options).snapshot().version == 1


def _always(fault: Fault, of: Callable[[Request], bool]) -> Plan:
    return lambda request: fault if of(request) else None


@pytest.mark.parametrize("place", ["s3", "azure", "gcs"], indirect=True)
def test_a_store_that_always_lies_gets_no_commit(place: Placed) -> None:
    plan = _always(Fault.LIES, lambda request: request.method == "PUT")
    with proxying(Proxy(_upstream(place), plan)) as proxy:
        options = _through(place, proxy.address, max_retries="0")
        log = txlake.Log(place.url, options, settings=QUICK)
        with pytest.raises(Unavailable, match="the self-test of put-if-absent got no clear reply"):
            log.start_transaction().commit([table_settings("id:long")])
    assert list(place.store.list("")) == []
