"""Paths and URLs, as users write them and in their canonical form."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlake.errors import InvalidRequest
from txlake.storage import canonical_url, join_url, local_path, open_store

CANONICAL = [
    ("/data/t", "file:///data/t"),
    ("/data/t/", "file:///data/t"),
    ("//data//t/../u/.", "file:///data/u"),
    ("/", "file:///"),
    ("/a b/100%/x=1/#2/é?'\"", "file:///a%20b/100%25/x=1/%232/%C3%A9%3F%27%22"),
    ("/a%20b", "file:///a%2520b"),
    ("/a:b", "file:///a:b"),
    ("file:///data/t", "file:///data/t"),
    ("file:///data/t/", "file:///data/t"),
    ("file:/data/t", "file:///data/t"),
    ("FILE:///data", "file:///data"),
    ("file://localhost/data", "file:///data"),
    ("file:///a%20b/%23", "file:///a%20b/%23"),
    ("file:///a b/#?", "file:///a%20b/%23%3F"),
    ("file:///", "file:///"),
    ("memory:", "memory://default"),
    ("memory://", "memory://default"),
    ("memory:///x", "memory://default/x"),
    ("memory:/x", "memory://default/x"),
    ("memory://name", "memory://name"),
    ("memory://name/a%20b/", "memory://name/a%20b"),
    ("s3://bucket", "s3://bucket"),
    ("s3://bucket/", "s3://bucket"),
    ("s3a://bucket/a/b/", "s3://bucket/a/b"),
    ("s3://bucket/a b#%20", "s3://bucket/a%20b%23%20"),
    ("gs://bucket/t", "gs://bucket/t"),
    ("gcs://bucket/t", "gs://bucket/t"),
    ("az://container/t", "az://container/t"),
    ("azure://container/t", "az://container/t"),
    ("abfss://c@account.dfs.core.windows.net/t", "abfss://c@account.dfs.core.windows.net/t"),
    ("abfs://c@account.dfs.core.windows.net/t", "abfss://c@account.dfs.core.windows.net/t"),
    ("hdfs://name-node:8020/a b/", "hdfs://name-node:8020/a%20b"),
    ("HDFS://service", "hdfs://service"),
    ("webhdfs://host:9870/t", "webhdfs://host:9870/t"),
    ("swebhdfs://[::1]:9871/t%25", "swebhdfs://[::1]:9871/t%25"),
]


@pytest.mark.parametrize(("location", "url"), CANONICAL)
def test_canonical_url(location: str, url: str) -> None:
    assert canonical_url(location) == url
    assert canonical_url(url) == url


RELATIVE = [
    ("t", "t"),
    ("./t", "t"),
    ("~/t", "~/t"),
    ("c:x", "c:x"),
    ("2026:01/t", "2026:01/t"),
    ("file:t", "file:t"),
    ("s3:t", "s3:t"),
    (" ./t", " ./t"),
]


@pytest.mark.parametrize(("location", "below"), RELATIVE)
def test_relative_paths_are_below_the_current_folder(location: str, below: str) -> None:
    assert local_path(canonical_url(location)) == f"{Path.cwd()}/{below}"


def test_path_objects() -> None:
    assert canonical_url(Path("/data/a b")) == "file:///data/a%20b"
    assert open_store(Path("/data/a b")).url == "file:///data/a%20b"


REFUSED = [
    ("", "names no place"),
    ("  ", "names no place"),
    ("/a\0b", "names no place"),
    ("file:///a%00b", "has the character NUL"),
    ("file://host/data", "names the host 'host'"),
    ("file://", "names no folder"),
    ("hdfs:///data", "names no name node: write hdfs://host:port/folder"),
    ("webhdfs://host:port/data", "names no name node"),
    ("hdfs://:8020/data", "names no name node"),
    ("hdfs://user@host/data", "names a user: give webhdfs_user"),
    ("hdfs://user:secret-of-mine@host/data", "names a user: give webhdfs_user"),
    ("hdfs://host/a/../b", "can't be used"),
    ("http://host/data", "scheme 'http'"),
    ("dbfs://x", "scheme 'dbfs'"),
    ("dbfs:/mnt/x", "one slash after its scheme"),
    ("hdfs:/data/x", "one slash after its scheme"),
    ("s3a:/b/x", "one slash after its scheme"),
    ("memory:name", "ambiguous: write memory://name"),
    ("s3://", "names no bucket"),
    ("s3:///x", "names no bucket"),
    ("abfss://@account/x", "names no bucket"),
    ("s3://bucket/a//b", "can't be used"),
    ("s3://bucket/a/../b", "can't be used"),
    ("memory://x/..", "can't be used"),
]


@pytest.mark.parametrize(("location", "message"), REFUSED)
def test_locations_that_name_no_place(location: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        canonical_url(location)
    with pytest.raises(InvalidRequest, match=message):
        open_store(location)


@pytest.mark.parametrize(
    "location",
    [
        "s3://key:hunter2@bucket/x",
        "s3://hunter2@bucket/x",
        "abfss://c:hunter2@account.dfs.core.windows.net/x",
        "http://user:hunter2@host/x",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(location: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        canonical_url(location)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///a%20b/%25/%23", "/a b/%/#"),
        ("file:/a", "/a"),
        ("file://localhost/a", "/a"),
        ("s3://bucket/a", None),
        ("memory://x", None),
        ("/data/t", None),
        ("t", None),
    ],
)
def test_local_path(url: str, path: str | None) -> None:
    assert local_path(url) == path


@pytest.mark.parametrize(
    ("url", "path", "joined"),
    [
        ("file:///data", "a b/c=1", "file:///data/a%20b/c=1"),
        ("file:///data/", "x%20", "file:///data/x%2520"),
        ("file:///", "x", "file:///x"),
        ("s3://bucket", "a#b", "s3://bucket/a%23b"),
        ("s3://bucket/t", "", "s3://bucket/t"),
        ("file:///", "", "file:///"),
    ],
)
def test_join_url(url: str, path: str, joined: str) -> None:
    assert join_url(url, path) == joined


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_any_local_path_survives_its_url(name: str) -> None:
    path = os.path.normpath("/data/" + name)
    url = canonical_url(path)
    assert local_path(url) == path
    assert url.isascii()
    assert " " not in url


def test_names_that_are_no_utf8_survive(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xfe")
    folder = tmp_path / name
    folder.mkdir()
    assert local_path(canonical_url(folder)) == str(folder)
    assert canonical_url(folder).endswith("/%FF%FE")
    (folder / "x").write_bytes(b"1")
    assert open_store(canonical_url(folder)).get("x") == b"1"


def test_memory_is_one_store_for_each_name() -> None:
    open_store("memory://locations-a/t").put("x", b"1")
    assert open_store("memory://locations-a").get("t/x") == b"1"
    assert open_store("memory://locations-b").head("t/x") is None
    open_store("memory:").put("locations", b"2")
    assert open_store("memory://default").get("locations") == b"2"


def test_opening_makes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a" / "b")
    store.at("c/d")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("location", "options", "message"),
    [
        ("s3://bucket", {"fs.s3a.access.key": "x"}, "fs.s3a.access.key.*correct storage_options"),
        ("s3://bucket", {"timeout": "soon"}, "correct storage_options"),
        ("s3://bucket", {"max_retries": "-1"}, "max_retries is a whole number"),
        ("s3://bucket", {"AWS_REGION": "a", "region": "b"}, "Duplicate key"),
        ("az://container", {}, "Account must be specified"),
        ("gs://bucket", {"google_service_account_key": "{}"}, "service account"),
    ],
)
def test_options_that_cannot_be_used(location: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        open_store(location, options)


def test_secrets_of_options_that_cannot_be_used_are_not_repeated() -> None:
    options = {"account_name": "a", "account_key": "no base 64: hunter2"}
    with pytest.raises(InvalidRequest) as caught:
        open_store("az://container", options)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "location",
    [
        "abfss://c@account.dfs.core.windows.net/t",
        "abfss://ws@onelake.dfs.fabric.microsoft.com/t",
        "abfss://c@account.dfs.core.chinacloudapi.cn/t",
        "gs://bucket/t",
    ],
)
def test_cloud_stores_open_without_a_request(location: str) -> None:
    assert open_store(location, {"max_retries": "0"}).at("x").url == location + "/x"
