"""Buckets: lost replies, refusals, and what the messages show."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import obstore.store
import pytest

from tests.storage.conftest import Scripted, s3_client
from txlake.errors import InvalidRequest, Unavailable
from txlake.ports import PutOutcome, Store
from txlake.storage import open_store
from txlake.storage.locations import StoreKind, StoreRoot
from txlake.storage.objects import Backend, BucketStore

CREATED, EXISTS, UNKNOWN = PutOutcome.CREATED, PutOutcome.EXISTS, PutOutcome.UNKNOWN

TIRED = b"<Error><Code>RequestTimeout</Code></Error>"


def _store(script: Scripted, **options: str) -> Store:
    return open_store("s3://bucket/t", script.options | options)


# --- put-if-absent -----------------------------------------------------------------------------


@pytest.mark.parametrize("keeps", [True, False], ids=["carried out", "not carried out"])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b""),
        (502, b""),
        (503, b"<Error><Code>SlowDown</Code></Error>"),
        (504, b""),
        (408, b""),
        (429, b""),
        (400, TIRED),
        (None, b""),
        (0, b""),
    ],
)
def test_a_lost_reply_is_unknown_and_never_repeated(
    scripted: Scripted, status: int | None, body: bytes, keeps: bool
) -> None:
    scripted.put_status, scripted.put_body, scripted.keeps = status, body, keeps
    store = _store(scripted, max_retries="5", timeout="1s" if status == 0 else "60s")
    assert store.put_if_absent("log/0", b"x") is UNKNOWN
    assert scripted.puts == 1
    assert list(scripted.objects.values()) == [b"x"] * keeps


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, b"<Error><Code>ExpiredToken</Code></Error>", "ExpiredToken"),
        (401, b"", "check the credentials in storage_options"),
        (403, b"", "check the credentials in storage_options"),
        (404, b"<Error><Code>NoSuchBucket</Code></Error>", "create the bucket"),
        (404, b"", "404 Not Found"),
        (405, b"", "405 Method Not Allowed"),
        (501, b"<Error><Code>NotImplemented</Code></Error>", "unsafe or incomplete"),
        (507, b"<Error><Code>XMinioStorageFull</Code></Error>", "free space in the store"),
    ],
)
def test_a_refusal_is_an_error(scripted: Scripted, status: int, body: bytes, message: str) -> None:
    scripted.put_status, scripted.put_body, scripted.keeps = status, body, False
    store = _store(scripted)
    with pytest.raises(InvalidRequest, match=message) as caught:
        store.put_if_absent("log/0", b"x")
    assert "s3://bucket/t/log/0" in str(caught.value)
    with pytest.raises(InvalidRequest, match=message):
        store.put("log/0", b"x")


@pytest.mark.parametrize("e_tag", ['"1"', None])
def test_a_store_that_says_it_kept_what_it_did_not(scripted: Scripted, e_tag: str | None) -> None:
    scripted.keeps, scripted.e_tag = False, e_tag
    store = _store(scripted)
    assert store.put_if_absent("log/0", b"x") is UNKNOWN
    with pytest.raises(Unavailable, match="no clear reply"):
        store.ensure_safe()


def test_a_store_whose_tags_are_of_requests(scripted: Scripted) -> None:
    scripted.e_tag = '"of the put"'
    store = _store(scripted)
    store.ensure_safe()
    assert store.put_if_absent("log/0", b"x") is CREATED
    scripted.keeps, scripted.refuses = False, False
    assert store.put_if_absent("log/0", b"another's") is UNKNOWN


def test_an_object_that_cannot_be_looked_at_may_be_there(scripted: Scripted) -> None:
    scripted.head_status = 500
    assert _store(scripted).put_if_absent("log/0", b"x") is UNKNOWN


def test_a_reply_with_the_contents_digest_is_proof(scripted: Scripted) -> None:
    """Only who received the bytes knows it, so nothing is looked up."""
    scripted.head_status = 500
    scripted.e_tag = f'"{hashlib.md5(b"x", usedforsecurity=False).hexdigest()}"'
    store = _store(scripted)
    assert store.put_if_absent("log/0", b"x") is CREATED
    assert store.put_if_absent("log/1", b"other bytes") is UNKNOWN


def test_azure_takes_a_backslash_for_a_slash() -> None:
    options = {"azure_storage_account_name": "a", "azure_storage_account_key": "Yg=="}
    for url in ("az://c/t", "abfss://c@a.dfs.core.windows.net/t"):
        with pytest.raises(InvalidRequest, match="takes a backslash for a slash"):
            open_store(url, options).put("a\\b", b"")
        with pytest.raises(InvalidRequest, match="takes a backslash for a slash"):
            open_store(f"{url}/a%5Cb", options).get("c")


def test_what_is_there_is_not_overwritten(scripted: Scripted) -> None:
    store = _store(scripted)
    assert store.put_if_absent("log/0", b"x") is CREATED
    assert store.put_if_absent("log/0", b"y") is EXISTS
    assert store.get("log/0") == b"x"


@pytest.mark.parametrize(("keeps", "outcome"), [(True, EXISTS), (False, UNKNOWN)])
def test_s3_says_conflict_when_requests_meet(
    scripted: Scripted, keeps: bool, outcome: PutOutcome
) -> None:
    # 409 ConditionalRequestConflict: the other request may not have won either.
    scripted.put_status, scripted.keeps = 409, keeps
    assert _store(scripted).put_if_absent("log/0", b"x") is outcome


def test_a_request_that_was_not_sent_is_no_unknown_outcome(closed_port: int) -> None:
    options = {
        "endpoint": f"http://127.0.0.1:{closed_port}",
        "access_key_id": "a",
        "secret_access_key": "b",
        "allow_http": "true",
        "max_retries": "0",
    }
    store = open_store("s3://bucket/t", options)
    with pytest.raises(Unavailable, match="s3://bucket/t/log/0"):
        store.put_if_absent("log/0", b"x")
    for call in (
        lambda: store.get("log/0"),
        lambda: store.get_range("log/0", 0, 1),
        lambda: store.head("log/0"),
        lambda: list(store.list("")),
        lambda: store.put("log/0", b"x"),
        lambda: store.delete(["log/0"]),
        store.ensure_safe,
    ):
        with pytest.raises(Unavailable, match="try again") as caught:
            call()
        assert caught.value.__cause__ is not None


def test_put_if_absent_switched_off_by_an_option(scripted: Scripted) -> None:
    store = _store(scripted, conditional_put="disabled")
    with pytest.raises(InvalidRequest, match="unsafe or incomplete"):
        store.put_if_absent("log/0", b"x")
    assert scripted.puts == 0


def test_plain_writes_are_repeated(scripted: Scripted) -> None:
    scripted.put_status = 503
    with pytest.raises(Unavailable, match="503"):
        _store(scripted, max_retries="2").put("x", b"1")
    assert scripted.puts == 3


# --- buckets -----------------------------------------------------------------------------------


def test_a_bucket_that_is_not_there(s3_options: dict[str, str]) -> None:
    store = open_store("s3://nobody/t", s3_options)
    for call in (
        lambda: store.get("x"),
        lambda: list(store.list("")),
        lambda: store.put("x", b""),
        lambda: store.put_if_absent("x", b""),
    ):
        with pytest.raises(InvalidRequest, match="create the bucket, or correct its name"):
            call()


def test_markers_of_folders_are_no_objects(s3_options: dict[str, str]) -> None:
    store = open_store("s3://lake/markers", s3_options)
    store.put("t/log/0", b"x")
    with s3_client(s3_options) as client:
        client.put_object(Bucket="lake", Key="markers/t/log/", Body=b"")
    assert [each.path for each in store.list("t/log")] == ["t/log/0"]


def test_a_store_whose_deletion_stops_at_what_is_gone(tmp_path: Path) -> None:
    folder = obstore.store.LocalStore(tmp_path)  # as Azure and Google do
    with pytest.raises(FileNotFoundError):
        obstore.delete(folder, ["gone"])
    store = BucketStore(StoreRoot(StoreKind.MEMORY, "x", ""), Backend(folder, folder))
    for name in ("a", "b", "c"):
        store.put(name, b"")
    store.delete(["gone", "a", "gone too", "c"])
    assert [each.path for each in store.list("")] == ["b"]


@pytest.mark.parametrize(("lists_in_order", "pages"), [(True, 3), (False, 20)])
def test_pages_beyond_the_end_of_a_list_are_not_read(
    monkeypatch: pytest.MonkeyPatch, lists_in_order: bool, pages: int
) -> None:
    memory = obstore.store.MemoryStore()
    backend = Backend(memory, memory, lists_in_order=lists_in_order)
    store = BucketStore(StoreRoot(StoreKind.MEMORY, "x", "t"), backend)
    names = [f"log/{number:04}" for number in range(1_000)]
    for name in names:
        store.put(name, b"")
    listed, read = obstore.list, []

    def counted(*arguments: Any, **options: Any) -> Iterator[Any]:
        for page in listed(*arguments, **options):
            read.append(len(page))
            yield page

    monkeypatch.setattr(obstore, "list", counted)
    assert [each.path for each in store.list("log", before="log/0120")] == names[:120]
    assert len(read) == pages
    read.clear()
    assert next(store.list("log", "log/0119")).path == "log/0120"
    assert len(read) == (1 if lists_in_order else 18)


@pytest.mark.parametrize(
    ("url", "expected"),
    [("s3://lake--use1-az4--x-s3/t", False), ("s3://lake/t", True), ("memory://x/t", True)],
)
def test_a_directory_bucket_lists_in_no_order(url: str, expected: bool) -> None:
    store = open_store(url, {"aws_region": "us-east-1"} if url.startswith("s3") else {})
    assert isinstance(store, BucketStore)
    assert store._backend.lists_in_order is expected


# --- credentials -------------------------------------------------------------------------------

REPLY = (
    b"<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>AKIAABCDEFGHIJKLMNOP"
    b"</AWSAccessKeyId><StringToSign>AWS4-HMAC of hunter2</StringToSign>"
    b"<SignatureProvided>hunter2</SignatureProvided><Note>secret-of-the-test</Note></Error>"
)


@pytest.mark.parametrize("status", [403, 400, 500])
def test_no_credential_is_shown(scripted: Scripted, status: int) -> None:
    scripted.put_status, scripted.put_body = status, REPLY
    store = _store(scripted)
    with pytest.raises((InvalidRequest, Unavailable), match="SignatureDoesNotMatch") as caught:
        store.put("log/0", b"x")
    shown = "".join(traceback.format_exception(caught.value))
    error: BaseException | None = caught.value
    while error is not None:  # also what only a debugger sees
        shown += str(error) + str(error.__context__)
        error = error.__cause__ or error.__context__
    for secret in ("AKIAABCDEFGHIJKLMNOP", "hunter2", "secret-of-the-test"):
        assert secret not in shown
    for secret in scripted.options["secret_access_key"], scripted.options["access_key_id"]:
        assert secret not in repr(store)
